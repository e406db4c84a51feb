-- Forget every undo step of a session, in one step. Its version stays; a session that is not there stays absent.
local facts = call('HMGET', META, unpack(FACTS))
if is_behind(tonumber(facts[14])) then return at .. LATE end
if not facts[1] or not sound(facts) then return at .. ' unchanged' end  -- damage is reported by the read that follows
local ends = whole(facts[8])
if ends and ends <= now then return at .. ' unchanged' end
LIFE = facts[1]
local parts = parts_in(facts[12])
sealed_texts().field('undo', parts[5])  -- ends the script if they are damaged
parts[5] = 0
facts[12] = table.concat(parts, ' ')
-- Also if there was none: WAIT counts replicas that have all this connection wrote, and must have something to count.
call('HDEL', META, 'undo')
call('HSET', META, 'parts', facts[12], 'check', (check_of(facts)))
return at .. ' dropped'
