-- ARGV: partition, rows to look at, bytes to look at.
-- Removes rows that are due, and files the partition under what comes next. The expiry of the record
-- itself decides: the sorted sets only say where to look. Answers how many rows it looked at, and
-- whether more are due.
local now = millis()
local rows = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, ARGV[2])
local bytes, looked = tonumber(ARGV[3]), 0
for _, row in ipairs(rows) do
  local record = redis.call('HGET', KEYS[1], row)
  if not record or is_sound(record) and expiry_of(record) <= now then
    forget(row)
  elseif is_sound(record) and expiry_of(record) ~= NEVER then
    redis.call('ZADD', KEYS[3], expiry_of(record), row)
  else
    redis.call('ZREM', KEYS[3], row)
  end
  looked = looked + 1
  bytes = bytes - (record and #record or 0)
  if bytes <= 0 then
    break
  end
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if not first[1] then
  redis.call('ZREM', KEYS[4], ARGV[1])
  return {looked, 0}
end
redis.call('ZADD', KEYS[4], first[2], ARGV[1])
return {looked, tonumber(first[2]) <= now and 1 or 0}
