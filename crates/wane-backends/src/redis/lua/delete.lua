-- ARGV: partition, row, operation, milliseconds that the trace stays, fence, expected.
-- The trace tells whoever did not hear the answer that it was this operation that deleted.
local now = millis()
local row = ARGV[2]
local before = redis.call('HGET', KEYS[1], row)
if not before then
  return refused(false)
elseif not is_sound(before) then
  return UNSOUND
elseif not is_live(before, now) then
  if not is_trace(before) then
    forget(row)
  end
  return refused(false)
end
if string.sub(before, HEADER + 1) ~= ARGV[6] or not stamp(ARGV[5], before) then
  return refused(before)
end
local until_then = now + ARGV[4]
file(row, until_then)
redis.call('ZREM', KEYS[2], row)
local header = '\2' .. ARGV[3] .. expiry_bytes(until_then) .. NO_FENCE
redis.call('HSET', KEYS[1], row, header .. string.sub(before, 18, 25))
return applied(expiry_of(before))
