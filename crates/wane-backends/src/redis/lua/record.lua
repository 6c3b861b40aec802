-- What the scripts share: the time, and records as they are stored.
--
-- A record is a header of 33 bytes and then its value:
--    1       kind: 1 is a record, 2 the trace of a delete
--    2 - 17  the id of the operation that wrote it
--   18 - 25  its expiry in Unix milliseconds, big-endian; all ones for never
--   26 - 33  its fence, big-endian
-- After the header of a trace stands the expiry of the record that was deleted.
--
-- KEYS of every script, as many as it needs: the partition's records (hash), its order (sorted set),
-- its expiries (sorted set), and the due partitions of its bucket (sorted set).
--
-- Numbers of 64 bits are compared in halves, as a Lua number is a double, and as numbers, as strings
-- are compared by the server's locale.

local HEADER = 33
local NEVER = 2 ^ 64
local NO_FENCE = '\0\0\0\0\0\0\0\0'

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function expiry_of(record)
  local high, low = struct.unpack('>I4I4', record, 18)
  return high * 4294967296 + low
end

local function expiry_bytes(expiry)
  if expiry == NEVER then
    return '\255\255\255\255\255\255\255\255'
  end
  return struct.pack('>I4I4', math.floor(expiry / 4294967296), expiry % 4294967296)
end

local function is_trace(record)
  return string.byte(record) == 2
end

-- Whether this is a record or a trace of ours. Nothing else is ever changed or removed.
local function is_sound(record)
  local kind = string.byte(record)
  return kind == 1 and #record >= HEADER or kind == 2 and #record == HEADER + 8
end

local function is_live(record, now)
  return not is_trace(record) and expiry_of(record) > now
end

-- Removes a row that has expired. What a caller was told is gone cannot come back then, not even
-- when the server's clock is set back. It may fail where the server takes no writes: the row is
-- absent all the same.
local function forget(row)
  redis.pcall('HDEL', KEYS[1], row)
  redis.pcall('ZREM', KEYS[2], row)
  redis.pcall('ZREM', KEYS[3], row)
end
