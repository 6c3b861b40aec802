-- ARGV: partition, row, operation, life, fence, value, expected.
local now = millis()
local before = redis.call('HGET', KEYS[1], ARGV[2])
if not before then
  return refused(false)
elseif not is_sound(before) then
  return UNSOUND
elseif not is_live(before, now) then
  if not is_trace(before) then
    forget(ARGV[2])
  end
  return refused(false)
end
local stamped = string.sub(before, HEADER + 1) == ARGV[7] and stamp(ARGV[5], before)
if not stamped then
  return refused(before)
end
return store(ARGV[2], before, ARGV[3], expiry_for(ARGV[4], now, before), stamped, ARGV[6])
