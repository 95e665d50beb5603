"""One broker: its image of the cluster, its partitions, and the loops that keep both current.

Owns the composition, and the order of starting and stopping. The rules stand in `core`.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import ImageDelta, MetadataImage
from holdfast.core.replica.session_cache import SessionCache
from holdfast.core.replica.throttle import Quota
from holdfast.log.directories import LogDirectories, LogDirectory
from holdfast.log.errors import StorageError
from holdfast.node.broker.controller_channel import (
    ControllerChannel,
    KnownLeader,
    controller_addresses,
)
from holdfast.node.broker.fetch_lane import FetcherSurroundings
from holdfast.node.broker.forwarding import Forwarding
from holdfast.node.broker.isr_changes import IsrChanges
from holdfast.node.broker.leading_replica import Surroundings
from holdfast.node.broker.lifecycle import Lifecycle, endpoint_of
from holdfast.node.broker.metadata_observer import Observer
from holdfast.node.broker.producer_ids import ProducerIds
from holdfast.node.broker.registration import Registration
from holdfast.node.broker.replica_directories import Assignments
from holdfast.node.broker.replicas import Partitions
from holdfast.node.broker.topic_pieces import TopicPieces
from holdfast.node.coordinator import surroundings as coordinator
from holdfast.node.coordinator.groups import Groups
from holdfast.node.door.admission import Limits
from holdfast.node.door.api_table import ON_BROKER
from holdfast.node.door.dispatch import Dispatcher
from holdfast.node.door.figures import Figures
from holdfast.node.door.request_context import Authorizer
from holdfast.node.door.server import Server, Shared
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.runtime.ports import Runtime
from holdfast.runtime.sliced_work import SlicedWork
from holdfast.runtime.tasks import report_bug
from holdfast.wire.structs import ResourceType
from holdfast.wire.uuids import NULL_UUID

logger = logging.getLogger("holdfast.broker")


class Broker:
    """What every handler on a broker's listener may use."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        directories: LogDirectories,
        authorizer: Authorizer,
        figures: Figures,
        shared: Shared,
        *,
        machine_name: str,
    ) -> None:
        self.runtime = runtime
        self.figures = figures
        self._admissions, self.budgets = shared
        self.settings = settings
        self.directories = directories
        self.cluster_id = directories.cluster_id
        self.image = MetadataImage()  # changes only between handlers
        self.topic_pieces = TopicPieces()  # what Metadata says of the image's topics
        self.registration = Registration(settings.node_id)
        # What replication may take from this broker, and bring to it (KIP-73).
        self.leader_quota = Quota(settings.leader_replication_throttled_rate)
        self.follower_quota = Quota(settings.follower_replication_throttled_rate)
        self.waiting = WaitingRoom(asyncio.get_running_loop(), runtime.clock, runtime.provoke)
        self.sliced_work = SlicedWork(asyncio.get_running_loop(), runtime.worker)
        # Its own: clients that need Metadata to find anything don't wait behind long look-ups.
        # What is made for one is there for all who ask, so it may have every other turn.
        self.metadata_work = SlicedWork(asyncio.get_running_loop(), runtime.worker, rests=False)
        self.fetch_sessions = SessionCache(
            settings.max_incremental_fetch_session_cache_slots, runtime.random.below
        )
        self._known_leader = KnownLeader()
        self.channel = self._controller_channel(f"broker-{settings.node_id}")
        # A channel of its own: heartbeats don't wait behind answers that wait for the disk.
        self._heartbeats = self._controller_channel(f"broker-{settings.node_id}-heartbeats")
        # One for clients' requests: ISR changes don't wait behind whatever clients ask for.
        self.forwarding = Forwarding(
            self._controller_channel(f"broker-{settings.node_id}-forwarding")
        )
        self.isr_changes = IsrChanges(self.channel, self.registration, runtime.provoke)
        self.producer_ids = ProducerIds(self.channel, self.registration, runtime.provoke)
        self.assignments = Assignments(self.channel, self.registration, self.image, directories)
        self.groups = Groups(self._around_groups())
        self.partitions = self._make_partitions()
        self.server = Server(runtime, settings, Dispatcher(self, ON_BROKER, authorizer), shared)
        self.observer = Observer(
            # A channel of its own: a fetch that waits for news holds up what is behind it.
            self._controller_channel(f"broker-{settings.node_id}-observer"),
            self.image,
            self.metadata_changed,
            node_id=settings.node_id,
            cluster_id=self.cluster_id,
            directory_id=_metadata_directory(settings, directories),
        )
        self.lifecycle = Lifecycle(
            runtime, settings, self._heartbeats, self.observer, self.registration, directories
        )
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # One disk may end both roles of a node, and one of the two is told of.
        self.failed.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._machine_name = machine_name
        directories.watch_offline(self._directory_failed)
        self._current = False  # the image is at least as new as our registration

    def _make_partitions(self) -> Partitions:
        return Partitions(
            Surroundings(
                node=self.settings.node_id,
                lag_ms_max=self.settings.replica_lag_time_max_ms,
                clock=self.runtime.clock,
                waiting=self.waiting,
                propose=self.isr_changes.propose,
            ),
            self.image,
            self.directories,
            FetcherSurroundings(
                runtime=self.runtime,
                settings=self.settings,
                registration=self.registration,
                endpoint=self._endpoint,
                quota=self.follower_quota,
                ended=self._loop_ended,
            ),
            settings_of=self.topic_settings,
            taken_up=self.assignments.look,
            role_changed=self.groups.role_changed,
        )

    def _around_groups(self) -> coordinator.Surroundings:
        return coordinator.Surroundings(
            runtime=self.runtime,
            image=self.image,
            waiting=self.waiting,
            settings=lambda: self.settings,
            ask_controller=self.channel.send,
        )

    def _controller_channel(self, client_id: str) -> ControllerChannel:
        return ControllerChannel(
            self.runtime,
            controller_addresses(self.settings),
            client_id=client_id,
            request_timeout_ms=self.settings.request_timeout_ms,
            connect_timeout_ms=self.settings.controller_quorum_request_timeout_ms,
            known=self._known_leader,
        )

    async def start(self) -> None:
        """Bind, and begin to read the metadata log. Clients are held until `join` has returned."""
        await self.server.listen(self.settings.broker_listeners)
        self.channel.start(self._loop_ended)
        self.forwarding.channel.start(self._loop_ended)
        self._heartbeats.start(self._loop_ended)
        self.observer.start(self._loop_ended)
        self.lifecycle.listens_at(
            [
                endpoint_of(listener, self.server.ports[listener.name], self._machine_name)
                for listener in self.settings.advertised_listeners
                if listener.name in self.server.ports
            ]
        )

    async def join(self) -> None:
        """Register, take up what the image assigns to us, and serve. RegistrationError: refused.

        Partitions are taken up once the image is as new as our registration: before that it may
        show this broker as the leader in an epoch that is long over.
        """
        epoch = await self.lifecycle.register()
        self.lifecycle.start(self._tell_directories, self._loop_ended)
        await self.observer.applied(epoch)
        self._current = True
        await self.partitions.start()
        self._tell_directories()
        await self.lifecycle.ready()
        self.server.release()
        logger.info("broker %d serves, in broker epoch %d", self.settings.node_id, epoch)

    async def stop(self) -> None:
        """Hand leadership over, as far as a controller answers, then stop everything."""
        if self._current:
            if self.settings.controlled_shutdown_enable:
                await self.lifecycle.shut_down()
            await self.lifecycle.close()
        self._current = False  # what is decided from here on is for the others
        self.isr_changes.close()
        self.assignments.close()
        self.producer_ids.close()
        self.groups.close()
        await self.partitions.close()
        self.waiting.close()
        self.sliced_work.close()
        self.metadata_work.close()
        self.server.close()
        await self.observer.close()
        await self._heartbeats.close()
        await self.forwarding.channel.close()
        await self.channel.close()

    # -- what the loops report -----------------------------------------------------------------

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Act on what the metadata log said; called by the observer after the image has changed."""
        self.topic_pieces.changed(delta)
        if any(kind == ResourceType.BROKER for kind, _ in delta.configs_changed):
            self.settings = self.settings.with_dynamic(
                cluster=self.image.cluster_configs(),
                broker=self.image.broker_configs(self.settings.node_id),
            )
            self._admissions.brokers.limits = Limits.of(self.settings)
            self.directories.configure(self.settings)
            self.leader_quota.bytes_per_second = self.settings.leader_replication_throttled_rate
            self.follower_quota.bytes_per_second = self.settings.follower_replication_throttled_rate
        self.groups.metadata_changed(
            delta
        )  # before shards are begun, which know the image as it is
        if self._current:
            self.partitions.apply(delta)

    def _tell_directories(self) -> None:
        """Let the controller know where everything lies that this broker holds."""
        if self._current:
            self.assignments.look(self.partitions.held)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """A disk is lost: the others serve on; without any this broker is of no use."""
        self.partitions.directory_failed(directory)
        if not self.directories.none_left:
            self.lifecycle.directory_failed()
            self._tell_directories()
        elif not self.failed.done():
            self.failed.set_exception(StorageError(directory.path, directory.failure))

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        """A loop has died of a mistake of ours, or of a metadata log that can't be understood.

        A broker without it would only look alive.
        """
        failure = None if task.cancelled() else task.exception()
        if not isinstance(failure, MetadataLogError):
            report_bug(task)
        if failure is not None and not self.failed.done():
            self.failed.set_exception(failure)

    # -- what others ask -----------------------------------------------------------------------

    def topic_settings(self, topic: str) -> TopicSettings:
        """The settings of one topic as this broker sees them."""
        return TopicSettings.resolve(
            self.image.topic_configs(topic),
            cluster=self.image.cluster_configs(),
            broker=self.image.broker_configs(self.settings.node_id),
            static=self.settings.properties,
        )

    def _endpoint(self, node: int) -> tuple[str, int] | None:
        """Where another broker is reached by brokers."""
        registered = self.image.brokers.get(node)
        name = self.settings.inter_broker_listener_name
        endpoint = registered.endpoint(name) if registered is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None


def _metadata_directory(settings: NodeSettings, directories: LogDirectories) -> bytes:
    """Return the id of the directory for the metadata log, by which an observer is told.

    A voter's process has none for its broker: by that the controller tells the two apart.
    """
    if settings.is_controller:
        return NULL_UUID
    for each in directories.directories:
        if each.path == settings.metadata_log_dir:
            return each.directory_id
    return NULL_UUID
