-- What the writing scripts share. ARGV[1] is the partition.
--
-- The record itself is written last: where a step before fails, as when something else has the name
-- of an index, the record is what it was.

local function is_below(fence, other)
  local high, low = struct.unpack('>I4I4', fence)
  local other_high, other_low = struct.unpack('>I4I4', other)
  return high < other_high or high == other_high and low < other_low
end

-- The fence to stamp, or false where the live record's is higher.
local function stamp(fence, live)
  local stamped = live and string.sub(live, 26, 33) or NO_FENCE
  if fence == NO_FENCE then
    return stamped
  end
  return not is_below(fence, stamped) and fence
end

local function expiry_for(life, now, live)
  local kind = string.sub(life, 1, 1)
  if kind == 'p' then
    return NEVER
  elseif kind == 'f' then
    return now + string.sub(life, 2)
  elseif kind == 'u' then
    return tonumber(string.sub(life, 2))
  end
  return expiry_of(live)
end

-- Files a row under its expiry. A later expiry leaves the partition filed under the earlier one,
-- where the sweeper finds nothing and files it anew.
local function file(row, expiry)
  redis.call('ZADD', KEYS[4], 'LT', expiry, ARGV[1])
  redis.call('ZADD', KEYS[3], expiry, row)
end

local function refused(live)
  return {0, live or nil}
end

local function applied(expiry)
  return {1, expiry == NEVER and -1 or expiry}
end

local UNSOUND = {2}

-- Stores a record in place of whatever `before` is, and answers that.
local function store(row, before, operation, expiry, fence, value)
  if expiry ~= NEVER then
    file(row, expiry)
  elseif before and expiry_of(before) ~= NEVER then
    redis.call('ZREM', KEYS[3], row)
  end
  if not before or is_trace(before) then
    redis.call('ZADD', KEYS[2], 0, row)
  end
  local header = '\1' .. operation .. expiry_bytes(expiry) .. fence
  redis.call('HSET', KEYS[1], row, header .. value)
  return applied(expiry)
end
