-- Forget every undo step of a session, in one step. Its version stays; a session that is not there stays absent.
local stored = call('HMGET', META, unpack(META_FIELDS))
if is_behind(tonumber(stored[14])) then return at .. LATE end
if not stored[1] or not sound(stored) then return at .. ' unchanged' end  -- damage is reported by the read that follows
local ends = whole(stored[8])
if ends and ends <= now then return at .. ' unchanged' end
LIFE = stored[1]
local parts = parts_in(stored[12])
sealed_texts().field('undo', parts[5])  -- ends the script if they are damaged
parts[5] = 0
stored[12] = table.concat(parts, ' ')
-- Also if there was none: WAIT counts replicas that have all this connection wrote, and must have something to count.
call('HDEL', META, 'undo')
call('HSET', META, 'parts', stored[12], 'check', (check_of(stored)))
return at .. ' dropped'
