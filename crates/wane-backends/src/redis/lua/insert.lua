-- ARGV: partition, row, operation, life, fence, value.
local now = millis()
local before = redis.call('HGET', KEYS[1], ARGV[2])
if before then
  if not is_sound(before) then
    return UNSOUND
  elseif is_live(before, now) then
    return refused(before)
  end
end
return store(ARGV[2], before, ARGV[3], expiry_for(ARGV[4], now, false), ARGV[5], ARGV[6])
