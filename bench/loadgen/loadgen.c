/*
 * A load generator for servers that speak Kafka's protocol. One thread, epoll, no dependency.
 *
 * It knows of the protocol only what it must: a frame starts with its size; bytes 8 to 12 of a request and the first four
 * of a response are the correlation id. The requests come prepared from files, one whole frame in each; connection i
 * sends file i modulo their number again and again, with correlation ids of its own.
 *
 *   loadgen --host 127.0.0.1 --port 9092 --connections 50 --depth 10 --seconds 5 --warmup 1 [options] FRAME...
 *
 * Closed loop (the default): each connection keeps `depth` requests in flight.
 * Open loop (--rate R): R requests a second over all connections, whatever the server does. Latency counts from the moment
 * a request was due, so that a stalled server cannot hide the requests that it delayed.
 * Idle (--idle): the connections are opened one after the other, each when the one before has had an answer to a frame,
 * and held until the end of standard input; then those are counted that the server has not closed.
 *
 *   --reconnect      each connection is closed after one answer and opened again; latency counts from before the connect
 *   --rotate         each request is the next file's, not the connection's; all files are of one size
 *   --vary-at N      the 16 bytes there become the hexadecimal digits of a number that no other request has
 *   --error-at N     byte of the response (size not counted) at which an error code stands
 *   --offset-at N    byte of the request at which a fetch offset stands; it then walks through the log. Needs --depth 1
 *   --records-at N   byte of the response at which a compact records field begins
 *   --end-offset N   where that walk turns back to offset 0
 *
 * Prints one JSON object. Exit code 2 on a wrong call or a failed connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"

#define HEAD 12
#define SMALL_FRAME 1024
#define STAGING (64 * SMALL_FRAME)
#define FIRST_BUFFER (64 * 1024)
#define BATCH_HEADER 61
#define VARIED 16
#define NANOS 1000000000ull

struct frame {
    uint8_t *data;
    size_t size;
};

struct connection {
    int fd;
    const struct frame *frame;
    uint8_t *own_frame; /* a patched copy, when the fetch offset walks */
    uint32_t next_to_send, next_to_receive, allowed;
    size_t sent_of_current;
    uint64_t *due; /* ring of start times, by correlation id */
    uint8_t *buffer;
    size_t filled, capacity;
    bool waits_for_output;
};

static struct {
    const char *host;
    int port, connections, depth;
    double seconds, warmup_s, rate;
    long error_at, offset_at, records_at, vary_at;
    uint64_t end_offset;
    bool idle, reconnect, rotate;
} options = {.host = "127.0.0.1", .port = 9092, .connections = 1, .depth = 1, .seconds = 5, .warmup_s = 1,
             .error_at = -1, .offset_at = -1, .records_at = -1, .vary_at = -1};

static struct {
    struct histogram latency;
    uint64_t responses, bytes_sent, bytes_received, record_bytes, errors;
    int first_error_code;
} counted;

static struct frame *frames;
static int frame_count, epoll_fd, timer_fd = -1;
static uint32_t ring_size; /* a power of two */
static uint64_t vary_base; /* so that runs differ, too */
static struct connection *connections;

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NANOS + (uint64_t)now.tv_nsec;
}

static uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static uint64_t read_u64(const uint8_t *at) { return (uint64_t)read_u32(at) << 32 | read_u32(at + 4); }

static void write_u32(uint8_t *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static void write_u64(uint8_t *at, uint64_t value) {
    write_u32(at, (uint32_t)(value >> 32));
    write_u32(at + 4, (uint32_t)value);
}

static void *allocate(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) die("no memory for %zu bytes", size);
    return memory;
}

static struct frame load_frame(const char *path) {
    struct stat facts;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &facts) < 0) die("%s: %s", path, strerror(errno));
    struct frame frame = {allocate((size_t)facts.st_size), (size_t)facts.st_size};
    if (read(fd, frame.data, frame.size) != (ssize_t)frame.size) die("%s: short read", path);
    close(fd);
    if (frame.size < HEAD || read_u32(frame.data) != frame.size - 4) die("%s: not one whole frame", path);
    return frame;
}

static void watch(struct connection *c, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (c->waits_for_output ? EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
}

static void receive_exactly(int fd, uint8_t *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t got = recv(fd, data + at, size - at, 0);
        if (got <= 0) die("the server closed a connection: %s", got ? strerror(errno) : "end of stream");
        at += (size_t)got;
    }
}

/* A request and its answer, so that the server has surely taken the connection in. */
static void greet(int fd, const struct frame *frame) {
    uint8_t answer[FIRST_BUFFER];
    if (send(fd, frame->data, frame->size, 0) != (ssize_t)frame->size) die("send: %s", strerror(errno));
    receive_exactly(fd, answer, 4);
    size_t size = read_u32(answer);
    if (size > sizeof answer) die("the first response declares %zu bytes", size);
    receive_exactly(fd, answer, size);
}

static void connect_socket(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) die("%s is no IPv4 address", options.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket: %s", strerror(errno));
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connection %d to %s:%d: %s", (int)(c - connections), options.host, options.port, strerror(errno));
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void open_connection(struct connection *c, int index) {
    connect_socket(c);
    if (options.idle) greet(c->fd, &frames[index % frame_count]);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (!options.idle) {
        c->frame = &frames[index % frame_count];
        c->own_frame = c->frame->data;
        if (options.offset_at >= 0) {
            c->own_frame = allocate(c->frame->size);
            memcpy(c->own_frame, c->frame->data, c->frame->size);
        }
        c->due = allocate(ring_size * sizeof *c->due);
        c->capacity = FIRST_BUFFER;
        c->buffer = allocate(c->capacity);
    }
    watch(c, EPOLL_CTL_ADD);
}

static void reopen_connection(struct connection *c) {
    close(c->fd);
    connect_socket(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->waits_for_output = false;
    watch(c, EPOLL_CTL_ADD);
}

static void write_small_request(const struct connection *c, uint32_t id, uint8_t *at) {
    static const char digits[] = "0123456789abcdef";
    uint64_t index = (uint64_t)(c - connections), number = (index << 56) + vary_base + id;
    memcpy(at, options.rotate ? frames[(index + id) % (uint64_t)frame_count].data : c->own_frame, c->frame->size);
    write_u32(at + 8, id);
    for (int i = 0; options.vary_at >= 0 && i < VARIED; i++) at[options.vary_at + i] = (uint8_t)digits[number >> (60 - 4 * i) & 15];
}

/* One system call's worth of what may be sent now; its size. */
static size_t gather(struct connection *c, struct iovec *pieces, int *piece_count, uint8_t *staging, uint8_t heads[][HEAD]) {
    size_t size = c->frame->size, skip = c->sent_of_current, total = 0;
    uint32_t limit = c->next_to_receive + (uint32_t)options.depth;
    uint32_t until = (int32_t)(c->allowed - limit) < 0 ? c->allowed : limit;
    int count = 0;
    if (size <= SMALL_FRAME) {
        for (uint32_t id = c->next_to_send; id != until && total + size <= STAGING; id++) {
            write_small_request(c, id, staging + total);
            total += size;
        }
        pieces[0] = (struct iovec){staging + skip, total - (total ? skip : 0)};
        *piece_count = 1;
        return pieces[0].iov_len;
    }
    for (uint32_t id = c->next_to_send; id != until && count < 8; id++) {
        uint8_t *head = heads[count / 2];
        memcpy(head, c->own_frame, 8);
        write_u32(head + 8, id);
        size_t of_head = skip < HEAD ? HEAD - skip : 0, of_body = skip < HEAD ? size - HEAD : size - skip;
        pieces[count++] = (struct iovec){head + HEAD - of_head, of_head};
        pieces[count++] = (struct iovec){c->own_frame + size - of_body, of_body};
        total += of_head + of_body;
        skip = 0;
    }
    *piece_count = count;
    return total;
}

static void send_allowed(struct connection *c) {
    static uint8_t staging[STAGING];
    struct iovec pieces[8];
    uint8_t heads[4][HEAD];
    bool blocked = false;
    while (!blocked) {
        int piece_count = 0;
        size_t wanted = gather(c, pieces, &piece_count, staging, heads);
        if (wanted == 0) break;
        ssize_t written = writev(c->fd, pieces, piece_count);
        if (written < 0 && errno != EAGAIN) die("write: %s", strerror(errno));
        size_t done = written < 0 ? 0 : (size_t)written;
        blocked = done < wanted;
        counted.bytes_sent += done;
        c->sent_of_current += done;
        c->next_to_send += (uint32_t)(c->sent_of_current / c->frame->size);
        c->sent_of_current %= c->frame->size;
    }
    if (blocked != c->waits_for_output) {
        c->waits_for_output = blocked;
        watch(c, EPOLL_CTL_MOD);
    }
}

/* Walk over the record batches of a fetch response, and ask for what follows them next time. */
static void walk_log(struct connection *c, const uint8_t *response, size_t size) {
    size_t at = (size_t)options.records_at, length = 0;
    for (int shift = 0; at < size; shift += 7) {
        uint8_t byte = response[at++];
        length |= (size_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    length = length ? length - 1 : 0;
    if (length > size - at) die("records of %zu bytes in a response of %zu", length, size);
    counted.record_bytes += length;
    const uint8_t *batch = response + at, *end = batch + length;
    uint64_t next = 0;
    while (end - batch >= BATCH_HEADER && (size_t)(end - batch) >= read_u32(batch + 8) + 12ull) {
        next = read_u64(batch) + read_u32(batch + 23) + 1;
        batch += read_u32(batch + 8) + 12ull;
    }
    if (next == 0) {
        counted.errors++;
        if (!counted.first_error_code) counted.first_error_code = -2;
    }
    write_u64(c->own_frame + options.offset_at, next >= options.end_offset ? 0 : next);
}

static void take_response(struct connection *c, const uint8_t *response, size_t size, uint64_t now) {
    if (size < 4 || read_u32(response) != c->next_to_receive)
        die("response %u has correlation id %u", c->next_to_receive, size < 4 ? 0 : read_u32(response));
    if (options.error_at >= 0) {
        if ((size_t)options.error_at + 2 > size) die("response of %zu bytes has no error code", size);
        int code = (int16_t)(response[options.error_at] << 8 | response[options.error_at + 1]);
        if (code != 0) {
            if (!counted.first_error_code) counted.first_error_code = code;
            counted.errors++;
        }
    }
    if (options.offset_at >= 0) walk_log(c, response, size);
    histogram_add(&counted.latency, now - c->due[c->next_to_receive & (ring_size - 1)]);
    counted.responses++;
    c->next_to_receive++;
    if (options.rate <= 0) c->due[c->allowed++ & (ring_size - 1)] = now;
}

static void receive(struct connection *c) {
    ssize_t got = recv(c->fd, c->buffer + c->filled, c->capacity - c->filled, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("the server closed a connection: %s", got ? strerror(errno) : "end of stream");
    counted.bytes_received += (uint64_t)got;
    c->filled += (size_t)got;
    size_t at = 0;
    uint64_t now = now_ns();
    while (c->filled - at >= 4) {
        size_t size = read_u32(c->buffer + at);
        if (size > 1u << 30) die("response declares %zu bytes", size);
        if (c->filled - at < 4 + size) {
            if (4 + size > c->capacity) {
                c->capacity = 4 + size + FIRST_BUFFER;
                c->buffer = realloc(c->buffer, c->capacity);
                if (!c->buffer) die("no memory for a response of %zu bytes", size);
            }
            break;
        }
        take_response(c, c->buffer + at + 4, size, now);
        at += 4 + size;
    }
    c->filled -= at;
    if (at) memmove(c->buffer, c->buffer + at, c->filled);
    if (at && options.reconnect) reopen_connection(c);
    send_allowed(c);
}

static void arm_timer(uint64_t at_ns) {
    struct itimerspec spec = {.it_value = {(time_t)(at_ns / NANOS), (long)(at_ns % NANOS)}};
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* Give out the requests that are due until now; when the next one is. */
static uint64_t release_due(uint64_t start, uint64_t *released, uint64_t now) {
    for (;;) {
        uint64_t due = start + (uint64_t)((double)*released * 1e9 / options.rate);
        if (due > now) return due;
        struct connection *c = &connections[*released % (uint64_t)options.connections];
        if (c->allowed - c->next_to_receive >= ring_size) die("more than %u requests wait on a connection", ring_size);
        c->due[c->allowed++ & (ring_size - 1)] = due;
        ++*released;
        send_allowed(c);
    }
}

static void reset_counts(void) {
    histogram_reset(&counted.latency);
    counted.responses = counted.bytes_sent = counted.bytes_received = counted.record_bytes = 0;
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void turn(int timeout_ms) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll_fd, events, 256, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (!c) continue;
        if (events[i].events & EPOLLOUT) send_allowed(c);
        if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(c);
    }
}

static uint64_t unanswered(void) {
    uint64_t sum = 0;
    for (int i = 0; i < options.connections; i++) sum += connections[i].allowed - connections[i].next_to_receive;
    return sum;
}

static void run_load(void) {
    uint64_t start = now_ns(), measured_from = start + (uint64_t)(options.warmup_s * 1e9);
    uint64_t end = measured_from + (uint64_t)(options.seconds * 1e9), released = 0, now = start;
    double cpu_before = cpu_seconds();
    bool measuring = false;
    if (options.rate > 0) {
        struct epoll_event event = {.events = EPOLLIN};
        timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        if (timer_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &event) < 0) die("timer: %s", strerror(errno));
    } else {
        for (int i = 0; i < options.connections; i++) {
            while (connections[i].allowed < (uint32_t)options.depth) connections[i].due[connections[i].allowed++] = now_ns();
            send_allowed(&connections[i]);
        }
    }
    while ((now = now_ns()) < end) {
        if (!measuring && now >= measured_from) {
            measuring = true;
            measured_from = now;
            cpu_before = cpu_seconds();
            reset_counts();
        }
        if (options.rate > 0) arm_timer(release_due(start, &released, now));
        turn(100);
    }
    double elapsed = (double)(now - measured_from) / 1e9, cpu = cpu_seconds() - cpu_before;
    uint64_t in_time = counted.responses;
    if (options.rate > 0) {
        arm_timer(0);
        for (uint64_t give_up = now + 2 * NANOS; unanswered() && now_ns() < give_up;) turn(50);
    }
    const struct histogram *h = &counted.latency;
    printf("{\"seconds\": %.4f, \"requests\": %llu, \"requests_per_s\": %.1f, \"sent_mb_per_s\": %.3f, "
           "\"received_mb_per_s\": %.3f, \"records_mb_per_s\": %.3f, ",
           elapsed, (unsigned long long)in_time, (double)in_time / elapsed, (double)counted.bytes_sent / 1e6 / elapsed,
           (double)counted.bytes_received / 1e6 / elapsed, (double)counted.record_bytes / 1e6 / elapsed);
    printf("\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f, \"mean_us\": %.1f, ",
           histogram_percentile_us(h, 50), histogram_percentile_us(h, 90), histogram_percentile_us(h, 99),
           histogram_percentile_us(h, 99.9), (double)h->max_ns / 1e3, h->total ? (double)h->sum_ns / 1e3 / (double)h->total : 0.0);
    printf("\"errors\": %llu, \"first_error_code\": %d, \"unanswered\": %llu, \"client_cpu\": %.3f}\n",
           (unsigned long long)counted.errors, counted.first_error_code,
           (unsigned long long)(options.rate > 0 ? unanswered() : 0), cpu / elapsed);
}

static void run_idle(void) {
    struct epoll_event standard_input = {.events = EPOLLIN};
    int held = options.connections;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &standard_input) < 0) die("standard input is no pipe");
    printf("{\"opened\": %d}\n", held);
    fflush(stdout);
    for (bool holding = true; holding;) {
        struct epoll_event events[256];
        int count = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            char byte;
            if (!c) {
                holding = false;
            } else if (recv(c->fd, &byte, 1, 0) <= 0 && errno != EAGAIN) {
                held--;
                epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
            }
        }
    }
    printf("{\"held\": %d}\n", held);
}

static void read_options(int count, char **values) {
    static const struct option known[] = {
        {"host", 1, 0, 'h'}, {"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'}, {"depth", 1, 0, 'd'},
        {"seconds", 1, 0, 's'}, {"warmup", 1, 0, 'w'}, {"rate", 1, 0, 'r'}, {"error-at", 1, 0, 'e'},
        {"offset-at", 1, 0, 'o'}, {"records-at", 1, 0, 'a'}, {"end-offset", 1, 0, 'n'}, {"idle", 0, 0, 'i'},
        {"reconnect", 0, 0, 'x'}, {"rotate", 0, 0, 't'}, {"vary-at", 1, 0, 'v'}, {0}};
    for (int choice; (choice = getopt_long(count, values, "", known, NULL)) != -1;) {
        switch (choice) {
        case 'h': options.host = optarg; break;
        case 'p': options.port = atoi(optarg); break;
        case 'c': options.connections = atoi(optarg); break;
        case 'd': options.depth = atoi(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'w': options.warmup_s = atof(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 'e': options.error_at = atol(optarg); break;
        case 'o': options.offset_at = atol(optarg); break;
        case 'a': options.records_at = atol(optarg); break;
        case 'n': options.end_offset = strtoull(optarg, NULL, 10); break;
        case 'i': options.idle = true; break;
        case 'x': options.reconnect = true; break;
        case 't': options.rotate = true; break;
        case 'v': options.vary_at = atol(optarg); break;
        default: exit(2);
        }
    }
    frame_count = count - optind;
    if (options.connections < 1 || options.depth < 1) die("connections and depth must be positive");
    if (frame_count < 1) die("no request frame is given");
    if (options.offset_at >= 0 && (options.depth != 1 || options.records_at < 0)) die("--offset-at needs --depth 1 and --records-at");
    if (options.reconnect && options.depth != 1) die("--reconnect needs --depth 1");
}

static void check_variety(void) {
    bool varies = options.vary_at >= 0;
    vary_base = now_ns();
    for (int i = 0; i < frame_count; i++) {
        size_t size = frames[i].size;
        if ((options.rotate || varies) && size > SMALL_FRAME) die("--rotate and --vary-at need frames of %d bytes at most", SMALL_FRAME);
        if (options.rotate && size != frames[0].size) die("--rotate needs frames of one size");
        if (varies && (size_t)options.vary_at + VARIED > size) die("--vary-at is beyond the end of a frame");
    }
}

int main(int count, char **values) {
    read_options(count, values);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    frames = allocate((size_t)frame_count * sizeof *frames);
    for (int i = 0; i < frame_count; i++) frames[i] = load_frame(values[optind + i]);
    check_variety();
    uint32_t wanted = options.rate > 0 ? 1u << 16 : (uint32_t)options.depth;
    for (ring_size = 1; ring_size < wanted;) ring_size *= 2;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connections = allocate((size_t)options.connections * sizeof *connections);
    for (int i = 0; i < options.connections; i++) open_connection(&connections[i], i);
    if (options.idle)
        run_idle();
    else
        run_load();
    return 0;
}
