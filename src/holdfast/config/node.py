"""The settings of one node, frozen, made from a properties file. Pure: no file is read here.

Owns the rules between keys. What can't be honoured is a ConfigError; what is merely not used is a
warning, so that a file written for Apache Kafka can be taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.config.addresses import refuse_overrides
from holdfast.config.group_rules import check_groups
from holdfast.config.key import ConfigError, Value, refuse_if
from holdfast.config.listeners import (
    Listener,
    Server,
    Voter,
    parse_listeners,
    parse_protocol_map,
    parse_servers,
    parse_voters,
)
from holdfast.config.registry import NODE, why_too_small
from holdfast.config.retired import has_no_effect, replacement
from holdfast.config.settings import Settings
from holdfast.config.topic import TopicSettings

_WILDCARDS: Final = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")  # noqa: S104  named to be refused


class NodeSettings(Settings):
    """One attribute per key that changes something, named as the key with underscores.

    The endpoints are parsed: `listeners` and `advertised_listeners` hold `Listener`s (an empty host
    is the machine's own name, a port 0 the one that was bound), `controller_quorum_voters` holds
    `Voter`s. `log_dirs`, `metadata_log_dir`, `inter_broker_listener_name` are filled in where the
    file is silent. `properties` is the file as it was given, the static source of DescribeConfigs.
    """

    node_id: int
    process_roles: tuple[str, ...]
    broker_rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[Server, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str

    connections_max_idle_ms: int
    fetch_max_bytes: int
    holdfast_address_answer_bytes_max: int
    holdfast_address_request_bytes_max: int
    holdfast_answer_bytes_max: int
    holdfast_connection_answer_bytes_max: int
    holdfast_connection_partitions_max: int
    holdfast_connection_requests_max: int
    holdfast_request_bytes_max: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: tuple[str, ...]
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    request_timeout_ms: int
    socket_request_max_bytes: int

    auto_create_topics_enable: bool
    default_replication_factor: int
    delete_topic_enable: bool
    min_insync_replicas: int
    num_partitions: int
    unclean_leader_election_enable: bool

    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    producer_id_expiration_ms: int

    auto_leader_rebalance_enable: bool
    controlled_shutdown_enable: bool
    leader_imbalance_check_interval_seconds: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    follower_replication_throttled_rate: int
    leader_replication_throttled_rate: int
    replica_socket_timeout_ms: int
    unclean_leader_election_interval_ms: int

    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_ms: int
    initial_broker_registration_timeout_ms: int
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int

    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    holdfast_group_bytes_max: int
    holdfast_group_shard_groups_max: int
    holdfast_group_shard_offsets_bytes_max: int
    holdfast_groups_bytes_max: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    properties: Mapping[str, str]

    __slots__ = tuple(__annotations__)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[NodeSettings, list[str]]:
        """Return the settings and the warnings to print. ConfigError: they can't be used."""
        warnings = _unused(properties)
        values: dict[str, Value] = {}
        for name, key in NODE.items():
            text = properties.get(name)
            values[name] = key.parse_default() if text is None else key.parse(text)
        resolved = _identity(values, properties)
        attributes = {
            NODE[name].attribute: value
            for name, value in values.items()
            if NODE[name].attribute in cls.__slots__
        }
        attributes.update(resolved)
        settings = cls(**attributes, properties=dict(properties))
        _check_together(settings)
        check_groups(values)
        TopicSettings.resolve(static=properties)
        return settings, warnings

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Listeners where clients and brokers are served."""
        names = self.controller_listener_names
        return tuple(each for each in self.listeners if each.name not in names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Listeners where the controller serves; empty on a node that is only a broker."""
        return tuple(each for each in self.listeners if each.name in self.controller_listener_names)

    def is_protected(self, listener: Listener) -> bool:
        """Whether it is what brokers have beside clients' listeners. A controller's are apart."""
        return listener.name == self.inter_broker_listener_name and len(self.broker_listeners) > 1

    def with_dynamic(
        self, *, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> NodeSettings:
        """Return the settings under dynamic configs, `broker`'s stronger than `cluster`'s.

        Both hold text that was validated when it was set; a key that is read at start only stays.
        A key that neither sets is the file's again, so that what is deleted is gone. `properties`
        stays the file's, so that sources can still be told apart.
        """
        changes: dict[str, Any] = {}
        for name, key in NODE.items():
            if not key.update or key.attribute not in self.__slots__:
                continue
            sources = (broker, cluster, self.properties)
            text = next((source[name] for source in sources if name in source), None)
            value = key.parse_default() if text is None else key.parse(text)
            if value != getattr(self, key.attribute):
                changes[key.attribute] = value
        return self.replace(**changes) if changes else self


_DEFAULT_LISTENER: Final = Listener("PLAINTEXT", "", 9092)
NodeSettings.defaults = {
    key.attribute: key.parse_default()
    for key in NODE.values()
    if key.attribute in NodeSettings.__slots__
} | {
    "node_id": 0,
    "process_roles": ("broker",),
    "listeners": (_DEFAULT_LISTENER,),
    "advertised_listeners": (_DEFAULT_LISTENER,),
    "inter_broker_listener_name": _DEFAULT_LISTENER.name,
    "controller_quorum_voters": (),
    "controller_quorum_bootstrap_servers": (),
    "log_dirs": NODE["log.dir"].parse_default(),
    "metadata_log_dir": NODE["log.dir"].default,
    "properties": {},
}


def _unused(properties: Mapping[str, str]) -> list[str]:
    """Return a warning per key that does nothing; ConfigError for a key of ZooKeeper's time."""
    warnings = []
    for name in properties:
        gone = replacement(name)
        if gone is not None:
            raise ConfigError(f"{name} no longer exists: {gone}")
        key = NODE.get(name)
        if key is not None and not key.effect:
            warnings.append(f"{name} is read but has no effect yet")
        elif key is None and has_no_effect(name):
            warnings.append(f"{name} is a key of Apache Kafka's that has no effect here")
        elif key is None:
            warnings.append(f"{name} is not a known key and is ignored; check its spelling")
    return warnings


def _identity(values: Mapping[str, Value], properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes that follow from several keys together."""
    roles = _strings(values["process.roles"])
    refuse_if(
        not roles,
        "process.roles is missing: set it to broker, controller or broker,controller"
        " (there is no ZooKeeper mode)",
    )
    resolved: dict[str, Any] = {"process_roles": roles, "node_id": _node_id(values)}
    resolved.update(_endpoints(roles, values, properties))
    resolved.update(_quorum(roles, resolved["node_id"], values))
    directories = _strings(values["log.dirs"]) or _strings(values["log.dir"])
    refuse_if(not directories, "log.dirs is empty: name at least one directory")
    resolved["log_dirs"] = directories
    resolved["metadata_log_dir"] = values["metadata.log.dir"] or directories[0]
    resolved["broker_rack"] = values["broker.rack"] or None
    return resolved


def _node_id(values: Mapping[str, Value]) -> int:
    node_id, broker_id = values["node.id"], values["broker.id"]
    if node_id is None and isinstance(broker_id, int) and broker_id >= 0:
        node_id = broker_id
    if not isinstance(node_id, int):
        raise ConfigError("node.id is missing: give each node a number of its own, such as 0")
    refuse_if(
        broker_id not in (-1, node_id),
        f"broker.id={broker_id} and node.id={node_id} differ: remove broker.id",
    )
    return node_id


def _endpoints(
    roles: tuple[str, ...], values: Mapping[str, Value], properties: Mapping[str, str]
) -> dict[str, Any]:
    controller_names = tuple(name.upper() for name in _strings(values["controller.listener.names"]))
    protocols = parse_protocol_map(str(values["listener.security.protocol.map"]))
    listeners = parse_listeners("listeners", _strings(values["listeners"]), protocols)
    names = {listener.name for listener in listeners}
    refuse_if(
        not controller_names,
        "controller.listener.names is missing: name the controllers' listener, such as CONTROLLER",
    )
    refuse_if(
        "controller" in roles and not names & set(controller_names),
        f"listeners has none of controller.listener.names={','.join(controller_names)}:"
        " a controller must listen on one of them",
    )
    refuse_if(
        "controller" not in roles and names & set(controller_names),
        f"listeners names {','.join(sorted(names & set(controller_names)))}, which"
        " controller.listener.names keeps for controllers, and this node is only a broker",
    )
    refuse_if(
        "broker" not in roles and names - set(controller_names),
        f"listeners names {','.join(sorted(names - set(controller_names)))}, which is not in"
        " controller.listener.names, and this node is only a controller",
    )
    refuse_if(
        "broker" in roles and not names - set(controller_names),
        "listeners has no listener for clients: add PLAINTEXT://HOST:PORT",
    )
    advertised = _advertised(listeners, values, protocols)
    return {
        "listeners": listeners,
        "advertised_listeners": advertised,
        "controller_listener_names": controller_names,
        "inter_broker_listener_name": _inter_broker(
            roles, advertised, controller_names, values, properties
        ),
    }


def _advertised(
    listeners: tuple[Listener, ...], values: Mapping[str, Value], protocols: dict[str, str]
) -> tuple[Listener, ...]:
    """Listeners that are not advertised by name are advertised as they listen."""
    key = "advertised.listeners"
    given = parse_listeners(key, _strings(values[key]), protocols)
    bound = {listener.name: listener for listener in listeners}
    for listener in given:
        refuse_if(
            listener.name not in bound, f"{key} names {listener.name}, which is not in listeners"
        )
        refuse_if(
            listener.host in _WILDCARDS,
            f"{key}: {listener.host} can't be reached; name a host or an address",
        )
    named = {listener.name: listener for listener in given}
    advertised = []
    for listener in listeners:
        own = named.get(listener.name)
        if own is None:
            own = listener._replace(host="") if listener.host in _WILDCARDS else listener
        advertised.append(own)
    return tuple(advertised)


def _inter_broker(
    roles: tuple[str, ...],
    advertised: tuple[Listener, ...],
    controller_names: tuple[str, ...],
    values: Mapping[str, Value],
    properties: Mapping[str, str],
) -> str:
    name = values["inter.broker.listener.name"]
    if name is None:
        name = "PLAINTEXT"
        candidates = [each.name for each in advertised if each.name not in controller_names]
        # Kafka insists on a listener called PLAINTEXT here; with one candidate nothing is unclear.
        if name not in candidates and len(candidates) == 1:
            return candidates[0]
    elif "security.inter.broker.protocol" in properties:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol can't both be set:"
            " remove the second"
        )
    name = str(name).upper()
    if "broker" not in roles:
        return name
    refuse_if(
        name in controller_names, f"inter.broker.listener.name={name}: is kept for controllers"
    )
    refuse_if(
        all(listener.name != name for listener in advertised),
        f"inter.broker.listener.name={name}: must be one of the listeners"
        f" ({', '.join(listener.name for listener in advertised)})",
    )
    return name


def _quorum(roles: tuple[str, ...], node_id: int, values: Mapping[str, Value]) -> dict[str, Any]:
    voters = parse_voters(_strings(values["controller.quorum.voters"]))
    servers = parse_servers(
        "controller.quorum.bootstrap.servers",
        _strings(values["controller.quorum.bootstrap.servers"]),
    )
    refuse_if(
        not voters and not servers,
        "controller.quorum.voters is missing: name the controller, such as 100@localhost:9093",
    )
    ids = {voter.node_id for voter in voters}
    refuse_if(
        voters and "controller" in roles and node_id not in ids,
        f"controller.quorum.voters lacks node.id={node_id}, which is a controller",
    )
    refuse_if(
        "controller" not in roles and node_id in ids,
        f"controller.quorum.voters names node {node_id}, which process.roles makes a broker"
        " only: add controller to process.roles or give this node another node.id",
    )
    return {"controller_quorum_voters": voters, "controller_quorum_bootstrap_servers": servers}


def _check_together(settings: NodeSettings) -> None:
    """Refuse numbers that contradict each other, and addresses that can never match."""
    pairs = (
        ("broker.heartbeat.interval.ms", "broker.session.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    )
    for low, high in pairs:
        below = getattr(settings, NODE[low].attribute)
        above = getattr(settings, NODE[high].attribute)
        refuse_if(below >= above, f"{low}={below}: must be below {high}={above}")
    refuse_overrides(settings.max_connections_per_ip_overrides)
    small = why_too_small(settings.log_cleaner_dedupe_buffer_size, settings.log_cleaner_threads)
    refuse_if(small, small)


def _strings(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    assert isinstance(value, tuple), "a list key parses to a tuple"
    return value
