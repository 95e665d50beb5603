"""A broker's standing with the controller: registration, heartbeats, leaving in good order.

Owns the broker epoch and when the node may serve. It decides nothing about other brokers; it says
what this one wants and obeys what it is told.

Rules: brokers.md#registration, brokers.md#heartbeats, brokers.md#controlled-shutdown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.feature_levels import SUPPORTED
from holdfast.core.metadata.image import Broker, Endpoint
from holdfast.log.directories import LogDirectories
from holdfast.node.broker.controller_channel import ControllerChannel, ControllerUnavailableError
from holdfast.node.broker.metadata_observer import Observer
from holdfast.node.broker.nudge import Nudge
from holdfast.node.broker.registration import NOT_REGISTERED, Registration
from holdfast.runtime.ports import Runtime
from holdfast.runtime.tasks import Ended, cancelled
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from holdfast.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature
from holdfast.wire.uuids import NULL_UUID

logger = logging.getLogger("holdfast.lifecycle")

RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 500
LEAVING_BEAT_MS: Final = 50  # while others still have to learn that this broker leaves
DISCONNECTED_MS_MAX: Final = 500  # leaving, and no connection to any controller
SHUTDOWN_MS_MAX: Final = 30_000  # a controlled shutdown takes no longer, whatever happens

_HOPELESS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: (
        "its data belongs to another cluster: point controller.quorum.voters at its own controller,"
        " or format an empty directory for this one"
    ),
    ErrorCode.INVALID_REGISTRATION: (
        "the controller takes it for a copy: two brokers have log directories with the same"
        " directory.id; format the copy's directories anew"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the cluster has finalized features that this version does not know: upgrade this node"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "this node may not act as a broker: grant its principal ClusterAction"
    ),
}


class RegistrationError(Exception):
    """The controller will not have this broker. The text says why and what to do."""


class Lifecycle:
    """One start of one broker, from registration to leaving."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        channel: ControllerChannel,
        observer: Observer,
        registration: Registration,
        directories: LogDirectories,
    ) -> None:
        self.fenced = True
        self.incarnation_id = NULL_UUID
        self._runtime = runtime
        self._settings = settings
        self._channel = channel
        self._observer = observer
        self._registration = registration
        self._endpoints: Sequence[Endpoint] = ()
        self._directories = directories
        self._registered_again: Callable[[], None] | None = None
        self._ready = False
        self._leaving = False
        self._task: asyncio.Task[None] | None = None
        self._nudge = Nudge()
        self._unfenced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: asyncio.Future[None] | None = None
        self._heard_ms = 0
        # Who leaves waits until the others say, in a heartbeat, that they have read so.
        observer.someone_leaves = self._nudge.set

    # -- joining -------------------------------------------------------------------------------

    def listens_at(self, endpoints: Sequence[Endpoint]) -> None:
        """Begin this start of the broker, at the endpoints that are advertised and really bound."""
        self._endpoints = endpoints
        self.incarnation_id = self._runtime.random.uuid()

    @property
    def described(self) -> Broker:
        """This broker as it registers, whether or not the cluster knows it now."""
        return Broker(
            broker_id=self._settings.node_id,
            epoch=self._registration.epoch,
            incarnation_id=self.incarnation_id,
            endpoints=tuple(self._endpoints),
            rack=self._settings.broker_rack,
        )

    async def register(self) -> int:
        """Register, trying until the controller takes us; return the broker epoch.

        RegistrationError: it never will, or none was reached within
        initial.broker.registration.timeout.ms. An earlier start of this broker that was killed
        holds its place until its session has run out, so that can take a while.
        """
        clock = self._runtime.clock
        give_up_ms = clock.monotonic_ms() + self._settings.initial_broker_registration_timeout_ms
        pause_ms, reason, told = RETRY_MS, "", False
        while (left_ms := give_up_ms - clock.monotonic_ms()) > 0:
            try:
                response: BrokerRegistrationResponse = await self._channel.send(
                    self._request(),
                    timeout_ms=min(left_ms, self._settings.request_timeout_ms),
                )
            except ControllerUnavailableError as error:
                reason = str(error)
            else:
                code = error_code(response.error_code)
                if code is ErrorCode.NONE:
                    self._take_epoch(response.broker_epoch)
                    return response.broker_epoch
                if code in _HOPELESS:
                    raise RegistrationError(
                        f"broker {self._settings.node_id} can't register ({code.name}): "
                        f"{_HOPELESS[code]}"
                    )
                reason = code.name
                if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION and not told:
                    told = True
                    logger.info(
                        "broker %d is still registered by an earlier start; waiting until its "
                        "session runs out",
                        self._settings.node_id,
                    )
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(RETRY_MS_MAX, pause_ms * 2)
        raise RegistrationError(
            f"broker {self._settings.node_id} could not register within "
            f"{self._settings.initial_broker_registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {reason}. Is the controller up, and is no "
            "other process running with this node.id?"
        )

    def _take_epoch(self, epoch: int) -> None:
        self._registration.epoch = epoch
        self.fenced = True
        self._heard_ms = self._runtime.clock.monotonic_ms()
        logger.info("registered with broker epoch %d", epoch)
        if self._registered_again is not None:
            self._registered_again()

    def _request(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._settings.node_id,
            cluster_id=self._directories.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                RegisteredEndpoint(
                    name=endpoint.listener,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=endpoint.security_protocol,
                )
                for endpoint in self._endpoints
            ],
            features=[
                RegisteredFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            rack=self._settings.broker_rack,
            log_dirs=self._directories.online_ids,
            # Registering again, this process can tell that it never crashed since.
            previous_broker_epoch=(
                self._directories.previous_broker_epoch
                if self._registration.epoch == NOT_REGISTERED
                else self._registration.epoch
            ),
        )

    # -- staying -------------------------------------------------------------------------------

    def start(self, registered_again: Callable[[], None], ended: Ended) -> None:
        """Begin to beat; the broker stays fenced until `ready` has been called too.

        `registered_again` is called when the controller had forgotten this broker, and knows it
        anew; `ended` as for the channel.
        """
        assert self._registration.epoch != NOT_REGISTERED, "not registered"
        assert self._task is None, "started twice"
        self._registered_again = registered_again
        self._task = asyncio.get_running_loop().create_task(self._beat())
        self._task.add_done_callback(ended)

    def ready(self) -> asyncio.Future[None]:
        """The node can serve: ask to be unfenced. Done once it is."""
        self._ready = True
        self._nudge.set()
        return self._unfenced

    def directory_failed(self) -> None:
        """A log directory went offline: say so at once, so that others lead what lay there."""
        self._nudge.set()

    async def close(self) -> None:
        """Stop beating, without a word to the controller."""
        await cancelled(self._task)
        for waiter in (self._unfenced, self._left):
            if waiter is not None and not waiter.done():
                waiter.cancel()

    async def _beat(self) -> None:
        """Beat at once while there is something to reach, at the interval otherwise."""
        while True:
            if self.fenced and self._ready and not self._leaving:
                # It is unfenced once it has read its own registration: beat just then.
                applied = self._observer.applied(self._registration.epoch)
                await asyncio.wait(
                    [applied], timeout=self._settings.broker_heartbeat_interval_ms / 1000
                )
                applied.cancel()
            self._nudge.clear()
            # Half a session, as in Kafka: of a controller that was frozen another one takes over,
            # and it must hear of this broker before the session that it gives is over.
            timeout_ms = max(1, self._settings.broker_session_timeout_ms // 2)
            try:
                response = await self._channel.send(self._heartbeat(), timeout_ms=timeout_ms)
            except ControllerUnavailableError as error:
                logger.debug("no heartbeat: %s", error)
            else:
                if not self._runtime.provoke("heartbeat.answer-lost"):
                    await self._obey(response)
            await self._nudge.wait(self._pause_ms() / 1000)

    def _pause_ms(self) -> int:
        if self._leaving:
            return LEAVING_BEAT_MS
        if self.fenced and self._ready:
            return min(RETRY_MS, self._settings.broker_heartbeat_interval_ms)
        return self._settings.broker_heartbeat_interval_ms

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self._settings.node_id,
            broker_epoch=self._registration.epoch,
            current_metadata_offset=self._observer.image.offset,
            want_fence=not self._ready,
            want_shut_down=self._leaving,
            offline_log_dirs=self._directories.offline_ids,
        )

    async def _obey(self, response: BrokerHeartbeatResponse) -> None:
        code = error_code(response.error_code)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            if self._leaving:
                self._leave()
                return
            logger.warning("the controller no longer knows this broker (%s)", code.name)
            # A registration of its own, as after a restart: what it missed, it must not guess.
            self.incarnation_id = self._runtime.random.uuid()
            try:
                await self.register()
            except RegistrationError as error:
                logger.critical("%s", error)
                await asyncio.sleep(RETRY_MS_MAX / 1000)
            return
        if code is not ErrorCode.NONE:
            logger.warning("the controller refuses the heartbeat: %s", code.name)
            return
        self._heard_ms = self._runtime.clock.monotonic_ms()
        if self.fenced != response.is_fenced:
            self.fenced = response.is_fenced
            logger.info("the broker is %s", "fenced" if self.fenced else "unfenced")
        if not self.fenced and not self._unfenced.done():
            self._unfenced.set_result(None)
        if response.should_shut_down and self._leaving:
            self._leave()

    # -- leaving -------------------------------------------------------------------------------

    async def shut_down(self, *, timeout_ms: int = SHUTDOWN_MS_MAX) -> bool:
        """Ask the controller to move what this broker leads; True once it may go.

        False after `timeout_ms`, or when the controller has been silent for
        controller.quorum.request.timeout.ms, or unreachable for DISCONNECTED_MS_MAX: the others
        then notice by themselves that this broker is gone.
        """
        if self._task is None or self._task.done():
            return False
        self._left = asyncio.get_running_loop().create_future()
        self._leaving = True
        self._nudge.set()
        clock = self._runtime.clock
        began_ms = self._heard_ms = clock.monotonic_ms()
        while not self._left.done():
            now_ms = clock.monotonic_ms()
            quiet_ms_max = (
                self._settings.controller_quorum_request_timeout_ms
                if self._channel.connected
                else DISCONNECTED_MS_MAX
            )
            if now_ms - began_ms >= timeout_ms or now_ms - self._heard_ms >= quiet_ms_max:
                logger.warning("leaving without the controller's word: it does not answer in time")
                return False
            await asyncio.wait([self._left], timeout=LEAVING_BEAT_MS / 1000)
        return True

    def _leave(self) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(None)


def endpoint_of(advertised: Any, bound_port: int, machine_name: str) -> Endpoint:
    """The endpoint of one advertised listener; empty host and port 0 are filled in."""
    return Endpoint(
        advertised.name,
        advertised.host or machine_name,
        advertised.port or bound_port,
    )
