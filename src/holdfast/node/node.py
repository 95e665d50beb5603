"""One node: its log directories, and a broker, a controller or both on top of them.

Owns what the two roles share, and the order in which they start and stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from holdfast.config.figures import (
    ANSWER_BYTES,
    COMPACTION_ROUNDS,
    CONNECTIONS,
    CONNECTIONS_INDEBTED,
    CONNECTIONS_REFUSED,
    CONNECTIONS_UNFINISHED,
    FORWARDING_REFUSED,
    LOG_DIRS_OFFLINE,
    LOGS_NOT_COMPACTED,
    LOOP_LAG_MS_MAX,
    REPLICAS_SET_ASIDE,
    REQUEST_BYTES,
)
from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.registration import NOT_REGISTERED
from holdfast.node.controller.controller import Controller
from holdfast.node.door.admission import UNLIMITED, Admissions
from holdfast.node.door.api_table import ON_CONTROLLER
from holdfast.node.door.budget import Budgets
from holdfast.node.door.dispatch import Dispatcher
from holdfast.node.door.figures import Figures
from holdfast.node.door.request_context import AllowAll, Authorizer
from holdfast.node.door.server import Server, Shared
from holdfast.node.metadata.metadata_damage import check_metadata_log
from holdfast.runtime.loop_lag import LoopLag
from holdfast.runtime.ports import Runtime

logger = logging.getLogger("holdfast.node")


class Node:
    """A node in one process. It does not know how it was started, nor when it should end."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        *,
        machine_name: str = "localhost",
        authorizer: Authorizer | None = None,
        file_limit: int = 8192,
        connection_limit: int = UNLIMITED,
        make_log: Callable[..., Log] = Log,
    ) -> None:
        """`machine_name` is advertised for a listener that has no host of its own.

        `file_limit` is how many files the logs may keep open, `connection_limit` how many
        connections there are descriptors for. `make_log` makes each replica, for
        who wants to watch them.
        """
        self.runtime = runtime
        self.settings = settings
        # One object for all replicas, until the metadata says what their topics have.
        static = TopicSettings.resolve(static=settings.properties)
        self.directories = LogDirectories(
            runtime,
            settings,
            lambda _topic: static,
            file_limit=file_limit,
            make_log=make_log,
        )
        self.figures = Figures()
        self._loop_lag = LoopLag(runtime.clock)
        self.figures.tell(LOOP_LAG_MS_MAX, self._loop_lag.worst_ms)
        admissions, budgets = self._shared = Shared(
            Admissions(settings, connection_limit), Budgets(settings)
        )
        self.figures.tell(ANSWER_BYTES, lambda: budgets.answer_bytes)
        self.figures.tell(REQUEST_BYTES, lambda: budgets.request_bytes)
        self.figures.tell(CONNECTIONS_INDEBTED, lambda: budgets.closed_for_answers)
        self.figures.tell(CONNECTIONS_UNFINISHED, lambda: budgets.closed_for_requests)
        self.figures.tell(CONNECTIONS, admissions.__len__)
        self.figures.tell(CONNECTIONS_REFUSED, lambda: admissions.refused)
        self.figures.tell(
            FORWARDING_REFUSED, lambda: self.broker.forwarding.refused if self.broker else 0
        )
        self.figures.tell(COMPACTION_ROUNDS, lambda: self.directories.cleaner.rounds)
        self.figures.tell(LOGS_NOT_COMPACTED, lambda: self.directories.cleaner.apart)
        self.figures.tell(LOG_DIRS_OFFLINE, lambda: "; ".join(self.directories.failures))
        self.figures.tell(
            REPLICAS_SET_ASIDE, lambda: self.broker.partitions.set_aside() if self.broker else ""
        )
        self._machine_name = machine_name
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.broker: Broker | None = None
        self.controller: Controller | None = None
        self._controller_server: Server | None = None
        self._authorizer = authorizer or AllowAll()

    async def start(self) -> None:
        """Load what is on disk, bind, start the roles; then `serve`.

        What fails is raised once everything is stopped: what is on disk is as whole as it was.
        """
        if self.settings.is_controller:
            check_metadata_log(self.runtime.disk, self.settings.metadata_log_dir)
        try:
            self.directories.load()
            await self._start_roles()
        except Exception:
            try:
                await self.stop()
            except Exception:  # why it could not start matters more
                logger.exception("node %d could not be stopped properly", self.settings.node_id)
            raise

    async def _start_roles(self) -> None:
        self.directories.start()
        self._loop_lag.start()
        if self.settings.is_controller:
            await self._start_controller()
        if self.settings.is_broker:
            self.broker = Broker(
                self.runtime,
                self.settings,
                self.directories,
                self._authorizer,
                self.figures,
                self._shared,
                machine_name=self._machine_name,
            )
            await self.broker.start()

    async def serve(self) -> None:
        """Join the cluster and serve. Returns never; raises when the node can't go on.

        RegistrationError: the controller refuses this broker. StorageError: the controller's own
        log can't be written any more.
        """
        failures = [role.failed for role in (self.broker, self.controller) if role is not None]
        if self.broker is not None:
            await self._join(self.broker, failures)
        self.ready.set_result(None)
        await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
        _raise_first(failures)

    @staticmethod
    async def _join(broker: Broker, failures: Sequence[asyncio.Future[None]]) -> None:
        """Join, unless a role fails meanwhile: what is waited for would then never come."""
        joining = asyncio.get_running_loop().create_task(broker.join())
        try:
            await asyncio.wait([joining, *failures], return_when=asyncio.FIRST_COMPLETED)
            _raise_first(failures)
            await joining
        finally:
            joining.cancel()

    async def _start_controller(self) -> None:
        self.controller = Controller(
            self.runtime,
            self.settings,
            self.directories,
            self._authorizer,
            self.figures,
            self._shared.admissions.controllers,
        )
        self._controller_server = Server(
            self.runtime,
            self.settings,
            Dispatcher(self.controller, ON_CONTROLLER, self._authorizer),
            self._shared,
        )
        await self._controller_server.listen(self.settings.controller_listeners)
        self.controller.start()
        self._controller_server.release()

    async def stop(self) -> None:
        """Stop the roles, the broker first, and leave everything on disk as after a clean end.

        A part that fails keeps no other one from its end. The first error is raised afterwards.
        """
        first: Exception | None = None
        for stop in (
            self._stop_broker,
            self._hand_over_controller,
            self._stop_controller,
            self._close_directories,
        ):
            try:
                await stop()
            except Exception as error:
                if first is None:
                    first = error
                else:
                    logger.exception("node %d: this failed, too", self.settings.node_id)
        self._loop_lag.close()
        if first is not None:
            raise first
        logger.info("node %d stopped", self.settings.node_id)

    async def _stop_broker(self) -> None:
        if self.broker is not None:
            await self.broker.stop()

    async def _hand_over_controller(self) -> None:
        if self.controller is not None:
            await self.controller.shut_down()

    async def _stop_controller(self) -> None:
        if self.controller is not None:
            self.controller.close()
        if self._controller_server is not None:
            self._controller_server.close()

    async def _close_directories(self) -> None:
        # Who never got to register has written nothing since its last end: that one's proof holds.
        broker_epoch = self.directories.previous_broker_epoch
        if self.broker is not None and self.broker.registration.epoch != NOT_REGISTERED:
            broker_epoch = self.broker.registration.epoch
        await self.directories.close(broker_epoch=broker_epoch)


def _raise_first(failures: Sequence[asyncio.Future[None]]) -> None:
    for failed in failures:
        if failed.done():
            failed.result()
