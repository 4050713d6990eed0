"""For each alert, the metrics of a server with which the alert fires, and of one with which it does not."""

from typing import Final, NamedTuple


class Case(NamedTuple):
    """Series by name, in promtool's form: those with which the alert fires, and those with which it does not."""

    fires: dict[str, str]
    is_quiet: dict[str, str]


GROWS: Final = "0+600x120"
"""A counter that grows by ten a second, for two hours."""
STANDS: Final = "7x120"


def grows(series: str) -> Case:
    """Return the case of an alert about a counter that should stay constant."""
    return Case({series: GROWS}, {series: STANDS})


def is_at(series: str, bad: float, good: float) -> Case:
    """Return the case of an alert about a value."""
    return Case({series: f"{bad}x120"}, {series: f"{good}x120"})


_REFUSED: Final = 'klamm_acceptor_connectionsrefused_total{listener="a",reason="per_ip"}'
_ERRORS: Final = 'kafka_network_requestmetrics_errors_total{request="Produce",error="%s"}'
_TIMES: Final = 'kafka_network_requestmetrics_localtimems_bucket{request="Produce",le="%s"}'
_START: Final = 'kafka_server_app_info_start_time_ms{job="other",instance="a"}'
_UP: Final = 'up{job="other",instance="a"}'

CASES: Final = {
    "KlammRequestQueueFull": grows("klamm_requestchannel_queuefull_total"),
    "KlammRequestHandlersBusy": is_at("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", 0.1, 0.5),
    "KlammProcessorHot": is_at("kafka_network_processor_idle_percent", 0.05, 0.5),
    "KlammProcessorStuck": is_at("klamm_processor_turnagems", 10_001, 300),
    "KlammClientsThrottled": grows('klamm_clientquota_throttledrequests_total{quota="producer_byte_rate"}'),
    "KlammMemoryPoolDepleted": is_at("kafka_server_socket_server_metrics_memorypoolavgdepleted_percent", 0.2, 0.0),
    "KlammAcceptorBlocked": is_at("kafka_network_acceptor_acceptorblocked_percent", 0.2, 0.01),
    "KlammListenOverflows": grows("klamm_acceptor_listenoverflows_total"),
    "KlammConnectionsRefused": Case({_REFUSED: GROWS}, {_REFUSED: "0+30x120"}),
    "KlammAuthenticationFailures": grows(
        'kafka_server_socket_server_metrics_failed_authentication_total{listener="a"}'
    ),
    "KlammHandlersFail": Case({_ERRORS % "UNKNOWN_SERVER_ERROR": GROWS}, {_ERRORS % "NOT_LEADER_OR_FOLLOWER": GROWS}),
    "KlammStorageFails": Case({_ERRORS % "KAFKA_STORAGE_ERROR": GROWS}, {_ERRORS % "UNKNOWN_SERVER_ERROR": GROWS}),
    "KlammRequestsSlow": Case(
        {_TIMES % "1000": STANDS, _TIMES % "2000": GROWS, _TIMES % "+Inf": GROWS},
        {_TIMES % "1000": GROWS, _TIMES % "2000": GROWS, _TIMES % "+Inf": GROWS},
    ),
    "KlammFileDescriptorsRunOut": Case(
        {"process_open_fds": "95x120", "process_max_fds": "100x120"},
        {"process_open_fds": "80x120", "process_max_fds": "100x120"},
    ),
    "KlammAcceptingPauses": grows('klamm_acceptor_descriptorpauses_total{listener="a"}'),
    "KlammNotReady": is_at('klamm_server_obstacles{part="[gateway]",reason="no node of the cluster answers"}', 1, 0),
    "KlammGatewayWithoutNodes": is_at('klamm_gateway_upstreamnodes{gateway="gateway"}', 0, 3),
    "KlammGatewayNodesFail": grows(
        'klamm_gateway_upstreamconnectionfailures_total{gateway="gateway",reason="timeout"}'
    ),
    "KlammWorkersMissing": Case(
        {"klamm_workers_ready": "2x120", "klamm_workers_count": "3x120"},
        {"klamm_workers_ready": "3x120", "klamm_workers_count": "3x120"},
    ),
    "KlammWorkersFail": grows("klamm_workers_restarts_total"),
    "KlammCertificateExpires": is_at(
        'klamm_ssltransport_certificateexpiresinseconds{listener="a",server_name="default"}', 13 * 86_400, 15 * 86_400
    ),
    "KlammCertificateExpired": is_at(
        'klamm_ssltransport_certificateexpiresinseconds{listener="a",server_name="default"}', -1, 2 * 86_400
    ),
    "KlammCertificateUnusable": grows('klamm_ssltransport_reloadfailures_total{listener="a"}'),
    "KlammDenials": Case(
        {'klamm_authorizer_decisions_total{listener="a",result="denied"}': GROWS},
        {'klamm_authorizer_decisions_total{listener="a",result="allowed"}': GROWS},
    ),
    "KlammPasswordsGuessed": grows('klamm_sasl_paced_authentications_total{listener="a"}'),
    "KlammStateLimitReached": grows('klamm_statelimits_refused_total{table="topics"}'),
    "KlammAuditLosesEvents": grows('klamm_audit_eventsdropped_total{node="n",stream="requests"}'),
    "KlammAuditCannotWrite": grows('klamm_audit_writeerrors_total{node="n",stream="requests"}'),
    "KlammAuditCannotRecordChanges": grows('klamm_audit_intenterrors_total{node="n"}'),
    "KlammAuditSpoolFills": Case(
        {
            'klamm_audit_spoolbytes{node="n",stream="requests"}': "90x120",
            'klamm_audit_spoollimitbytes{node="n",stream="requests"}': "100x120",
        },
        {
            'klamm_audit_spoolbytes{node="n",stream="requests"}': "90x120",
            'klamm_audit_spoollimitbytes{node="n",stream="requests"}': "-1x120",
        },
    ),
    "KlammAuditUnreadable": is_at('klamm_audit_unreadablefiles_total{node="n",stream="requests"}', 1, 0),
    "KlammDown": Case({_UP: "1x60 0x60", _START: "1x60 stale"}, {_UP: "1x120", _START: "1x120"}),
}
