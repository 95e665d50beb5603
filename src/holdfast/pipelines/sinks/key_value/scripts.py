"""What Redis itself does, as one step each: take a query over, write a row, remember a batch.

Every script looks at the query's epoch first. A row is written for the batch that is under way
alone: its commit is one above what the query remembers. So a task that comes late, of an owner
before or of a batch that is over, writes nothing. A script's text is not on the server's disk: who
is told that it is unknown loads it and sends everything again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha1
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoScriptError


class Told(StrEnum):
    """What a script answers."""

    DONE = "done"  # written, or deleted
    OLDER = "older"  # the key has a higher version: nothing was written
    FENCED = "fenced"  # the query has another owner
    OVER = "over"  # this is not the batch that is under way
    AHEAD = "ahead"  # the key was written by a commit that the query has not come to


@dataclass(frozen=True, slots=True)
class Script:
    """A text that the server runs, and its name there."""

    text: str

    @property
    def name(self) -> str:
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()


TAKE: Final = Script("""
-- KEYS: query, table. ARGV: owner, the table's description as it was read, and as it becomes, and
-- by how much the epoch rises.
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[2], ARGV[3])
redis.call('HSETNX', KEYS[1], 'commit', '0')
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'epoch', ARGV[4])
""")
"""Gives the new epoch; 0: somebody else has changed the description."""

# Compared byte by byte, for Lua's own order of texts is that of the server's language.
WRITE: Final = Script("""
-- KEYS: query, row, marker. ARGV: epoch, the commit before, version, 'put' or 'delete',
-- how many of the rest are fields and values, these, and the fields that are null.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'commit')
if now[1] ~= ARGV[1] then return 'fenced' end
if now[2] ~= ARGV[2] then return 'over' end
local commit = tonumber(ARGV[2]) + 1

local function is_lower(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then return left < right end
  end
  return #one < #other
end

local stored = redis.call('HGET', KEYS[2], 'holdfast_version') or redis.call('GET', KEYS[3])
if stored then
  local version, written = string.match(stored, '^(v?%x*):(%d+)$')
  if not version or tonumber(written) > commit then return 'ahead' end
  if ARGV[3] ~= '' and is_lower(ARGV[3], version) then return 'older' end
end

local version = ARGV[3] .. ':' .. string.format('%.0f', commit)
-- What needs memory comes first: a server that has none left refuses the whole script.
if ARGV[4] == 'delete' then
  redis.call('SET', KEYS[3], version)
  redis.call('DEL', KEYS[2])
  return 'done'
end
local last = 5 + tonumber(ARGV[5])
redis.call('HSET', KEYS[2], 'holdfast_version', version, unpack(ARGV, 6, last))
if #ARGV > last then redis.call('HDEL', KEYS[2], unpack(ARGV, last + 1)) end
redis.call('DEL', KEYS[3])
return 'done'
""")

REMEMBER: Final = Script("""
-- KEYS: query, its gaps. ARGV: epoch, the commit before, then fields and values; the first is the
-- plan, the second what the log lacked of the batch.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'commit', 'plan')
if now[1] ~= ARGV[1] then return 'fenced' end
local commit = string.format('%.0f', tonumber(ARGV[2]) + 1)
if now[2] == commit and now[3] == ARGV[4] then return 'done' end -- told again: its answer was lost
if now[2] ~= ARGV[2] then return 'over' end
if ARGV[6] ~= '[]' then
  redis.call('RPUSH', KEYS[2], ARGV[6])
  redis.call('LTRIM', KEYS[2], -10000, -1)
end
redis.call('HSET', KEYS[1], 'commit', commit, unpack(ARGV, 3))
return 'done'
""")

Call = tuple[Sequence[bytes], Sequence[Any]]  # keys, arguments


def run(client: Redis, script: Script, calls: Sequence[Call]) -> list[Any]:
    """Run a script once for each call, sent together; return the answers. Errors are raised."""
    answers = _sent(client, script, calls)
    # A restart of the server in the middle forgets it again; after that it is no such thing.
    for _ in range(2):
        if not any(isinstance(answer, NoScriptError) for answer in answers):
            break
        client.script_load(script.text)
        answers = _sent(client, script, calls)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _sent(client: Redis, script: Script, calls: Sequence[Call]) -> list[Any]:
    with client.pipeline(transaction=False) as pipeline:
        for keys, arguments in calls:
            pipeline.evalsha(script.name, len(keys), *keys, *arguments)
        return pipeline.execute(raise_on_error=False)


def run_one(client: Redis, script: Script, keys: Sequence[bytes], *arguments: Any) -> Any:
    return run(client, script, [(keys, arguments)])[0]
