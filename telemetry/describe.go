package telemetry

import "github.com/prometheus/client_golang/prometheus"

// descriptions are all metrics of ours. Labels are in the order of their names.
type descriptions struct {
	all []*prometheus.Desc
	own ownDescriptions

	requests, inFlight, attempts, retries, replays  *prometheus.Desc
	backups, backupsWon                             *prometheus.Desc
	requestBytes, responseBytes                     *prometheus.Desc
	grpcCalls, grpcMessages                         *prometheus.Desc
	tcpConns, tcpReceived, tcpSent                  *prometheus.Desc
	endpointBreakers                                *prometheus.Desc
	breakerState, breakerChanges                    *prometheus.Desc
	duration, quantile                              *prometheus.Desc
	upOpen, upIdle, connects, connectSeconds        *prometheus.Desc
	connectFailures, endpoints, decisions           *prometheus.Desc
	bodyTooLarge, ejections, readmissions, limits   *prometheus.Desc
	spared, panics, away, notices, returns          *prometheus.Desc
	downOpen, downTotal, downRefused                *prometheus.Desc
	reloads, reloadTime, reloadSeconds, revision    *prometheus.Desc
	windows, retired, moderated, abuse              *prometheus.Desc
	updates, updateFailures, age, failing           *prometheus.Desc
	protected, doubted, keptFailures, gate          *prometheus.Desc
	logLines, logDropped, logErrors, events, evLost *prometheus.Desc
	stoodIn, switches, mirrored                     *prometheus.Desc
	series, seriesOverflow, build, rules, scripts   *prometheus.Desc
	versionRequests, versionFailed, versionSeconds  *prometheus.Desc
	documents, inherited                            *prometheus.Desc
}

// add describes one metric.
func (d *descriptions) add(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc("sidecar_"+name, help, labels, nil)
	d.all = append(d.all, desc)
	return desc
}

func newDescriptions() *descriptions {
	d := new(descriptions)
	d.ours()
	d.exchanges()
	d.upstream()
	d.process()
	return d
}

func (d *descriptions) exchanges() {
	route := []string{"direction", "route", "service"}
	d.requests = d.add("requests_total", "HTTP exchanges that ended.",
		"direction", "method", "reason", "route", "service", "status")
	d.inFlight = d.add("requests_in_flight", "Exchanges and TCP connections under way.", route...)
	d.attempts = d.add("attempts_total", "Tries at endpoints.", route...)
	d.retries = d.add("retries_total", "Tries repeated by the retry policy.", route...)
	d.replays = d.add("replays_total", "Tries repeated because the pooled connection was dead.", route...)
	d.backups = d.add("backups_total", "Attempts that began beside others: backup requests and dual-sends.", route...)
	d.backupsWon = d.add("backups_won_total", "Attempts beside others that gave the answer.", route...)
	d.grpcCalls = d.add("grpc_calls_total", "gRPC calls that ended, by status.", "direction", "route", "service", "status")
	d.grpcMessages = d.add("grpc_messages_total", "Messages of gRPC calls, received from and sent to downstream.",
		"direction", "route", "service", "way")
	d.requestBytes = d.add("request_bytes_total", "Bytes of HTTP request bodies.", route...)
	d.responseBytes = d.add("response_bytes_total", "Bytes of HTTP response bodies.", route...)
	d.tcpConns = d.add("tcp_connections_total", "TCP connections that ended.", "direction", "reason", "route", "service")
	d.tcpReceived = d.add("tcp_received_bytes_total", "Bytes received from downstream on TCP connections.", route...)
	d.tcpSent = d.add("tcp_sent_bytes_total", "Bytes sent downstream on TCP connections.", route...)
	d.breakerState = d.add("breaker_state", "Circuit breaker: 0 closed, 1 half open, 2 open.", "route", "service")
	d.breakerChanges = d.add("breaker_changes_total", "Changes of a circuit breaker by new state.", "route", "service", "to")
	d.duration = d.add("request_duration_seconds", "Time from the request's head to the end of the exchange; "+
		"of upgraded connections, to the answer's head.", "direction", "service")
	d.quantile = d.add("latency_quantile_seconds", "Quantiles of the same time over the last one to two minutes.",
		"direction", "quantile", "service")
}

func (d *descriptions) upstream() {
	d.versionRequests = d.add("version_requests_total", "Exchanges that ended at endpoints of a version.", "service", "status", "version")
	d.versionFailed = d.add("version_failures_total", "Of those, exchanges that failed.", "service", "version")
	d.versionSeconds = d.add("version_request_seconds_total", "Time that they took.", "service", "version")
	d.upOpen = d.add("upstream_connections_open", "Connections to endpoints.", "service")
	d.upIdle = d.add("upstream_connections_idle", "Connections to endpoints that wait for work.", "service")
	d.connects = d.add("upstream_connects_total", "Connections to endpoints that were made.", "service")
	d.connectSeconds = d.add("upstream_connect_seconds_total", "Time that successful connects took.", "service")
	d.connectFailures = d.add("upstream_connect_failures_total", "Connects that failed.", "reason", "service")
	d.away = d.add("upstream_goaways_total", "Connections of HTTP/2 that an endpoint asked to leave, by code.", "code", "service")
	d.endpoints = d.add("endpoints", "Endpoints that are known and that are usable; listed: that the known are a subset of.", "service", "state")
	d.decisions = d.add("retry_decisions_total", "Decisions to try again or not to.", "service", "why")
	d.bodyTooLarge = d.add("replay_body_too_large_total",
		"Exchanges that could not be repeated because the body was too large to keep.", "service")
	d.ejections = d.add("ejections_total", "Endpoints taken out by outlier detection, by rule.", "service", "why")
	d.spared = d.add("ejections_spared_total",
		"Failures after which an endpoint should have gone out, but was kept for want of others, by rule.", "service", "why")
	d.panics = d.add("panic_picks_total", "Calls sent to an endpoint although none was usable.", "service")
	d.readmissions = d.add("readmissions_total", "Ejected endpoints that came back.", "service")
	d.endpointBreakers = d.add("endpoint_breaker_changes_total", "Changes of the breakers of endpoints by new state.", "service", "to")
	d.notices = d.add("offline_notices_total", "Endpoints left out because they said that they leave.", "service")
	d.returns = d.add("offline_returns_total", "Endpoints used again although they had said that they leave.", "service")
	d.mirrored = d.add("mirrored_total", "Copies of requests, by what became of them: sent, failed, full, body.", "result", "service")
	d.stoodIn = d.add("stand_ins_total", "Answers in place of a service: shield (no call was made), fallback (the call failed).",
		"kind", "service")
	d.switches = d.add("switch_state", "Degradation switch: 0 off, 1 on, 2 on by its rule, 3 on for a falling share.", "switch")
	d.limits = d.add("limit_refusals_total", "Refusals by limit; service is empty for limits of the process.",
		"limit", "service")
}

func (d *descriptions) process() {
	d.downOpen = d.add("downstream_connections_open", "Accepted connections that are open.", "direction", "listener")
	d.downTotal = d.add("downstream_connections_total", "Accepted connections.", "direction", "listener")
	d.downRefused = d.add("downstream_connections_refused_total", "Connections refused by limit.",
		"direction", "limit", "listener")
	d.reloads = d.add("reloads_total", "Configurations put into force (ok) or refused (failed).", "result")
	d.reloadTime = d.add("reload_timestamp_seconds", "Unix time of the last reload by result.", "result")
	d.reloadSeconds = d.add("reload_duration_seconds", "Time that the last reload took.")
	d.revision = d.add("config_revision_hash", "Low 48 bits of the hash of the configuration in force.")
	d.inherited = d.add("policy_inherited_fields", "Fields of a policy that the provider decided, for the service itself (no route) and for routes.", "route", "service")
	d.documents = d.add("config_documents", "Documents of the config centre: in force, an earlier version kept, refused, or restored from the disk.", "state")
	d.rules = d.add("rules", "Rules between callers and endpoints, by the rank of their source.", "rank", "service")
	d.scripts = d.add("script_failures_total", "Runs of script rules that failed.")
	d.abuse = d.add("downstream_abuse_total", "What was done about clients that abuse HTTP/2.", "direction", "what")
	d.retired = d.add("connections_retired_total", "HTTP/2 connections that were left for new ones, by the bound that they reached.", "side", "why")
	d.moderated = d.add("moderated_connections", "HTTP/2 connections that are read at a steady pace at the moment.")
	d.windows = d.add("window_memory_bytes", "Octets that HTTP/2 peers were promised beyond their first windows.")
	d.updates = d.add("discovery_updates_total", "Changes that a discovery source delivered.", "source")
	d.updateFailures = d.add("discovery_failures_total", "Failures to hear from a discovery source.", "reason", "source")
	d.age = d.add("discovery_age_seconds", "Time since a discovery source was last heard.", "source")
	d.failing = d.add("discovery_failing", "1 while a discovery source cannot be heard.", "source")
	d.protected = d.add("discovery_protected", "1 while a protection keeps a list from being used as it is.",
		"protection", "service", "source")
	d.doubted = d.add("discovery_doubted_endpoints", "Endpoints that are used, or not, for another reason than being listed.",
		"service", "source", "why")
	d.gate = d.add("discovery_update_gate", "The update gate: 0 open, 1 closed and our turn, 2 closed and pulls are suspended.")
	d.keptFailures = d.add("discovery_snapshot_failures_total", "Failures to keep endpoints and documents on disk, or to use what was kept.")
	d.logLines = d.add("access_log_lines_total", "Access log lines that were written.")
	d.logDropped = d.add("access_log_dropped_total", "Access log lines dropped because the sink was slow or failed.")
	d.logErrors = d.add("access_log_errors_total", "Failures to write or open the access log.")
	d.events = d.add("events_total", "Events by kind.", "kind")
	d.evLost = d.add("events_log_lost_total", "Events that were not logged because the logger was slow.")
	d.series = d.add("series", "Series (direction, service, route) that are known.")
	d.seriesOverflow = d.add("series_overflow_total", "Times that a name was folded into _overflow.")
	d.build = d.add("build_info", "1, labelled with the build.", "goversion", "revision", "version")
}
