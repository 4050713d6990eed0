/* librdkafka's mock cluster as a server: one broker on a port that it chooses and prints. Ends on SIGTERM and SIGINT. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rdkafka.h"
#include "rdkafka_mock.h"

/* Linked with --wrap=listen: librdkafka's backlog of 5 overflows when 8 clients connect at once, which costs each a second. */
int __real_listen(int socket, int backlog);
int __wrap_listen(int socket, int backlog) { return __real_listen(socket, backlog < 128 ? 128 : backlog); }

int main(void) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    /* Before librdkafka starts its threads, which inherit the mask. */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);

    char error[256];
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, NULL, error, sizeof error);
    rd_kafka_mock_cluster_t *cluster = client ? rd_kafka_mock_cluster_new(client, 1) : NULL;
    if (!cluster) {
        fprintf(stderr, "mock: no cluster\n");
        return 1;
    }
    printf("port %s\n", strrchr(rd_kafka_mock_cluster_bootstraps(cluster), ':') + 1);
    fflush(stdout);

    int signal_number;
    sigwait(&stop, &signal_number);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(client);
    return 0;
}
