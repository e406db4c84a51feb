-- Read one page of jumps, others and snapshots. Writes nothing.
-- ARGV: jumps past this seq, others past that, the cursor to go on from in the snapshots ('': none of them); at most how many;
-- the life they belong to. If that life is over, the answer is empty.
-- The answer: jumps and others with their seqs, the next cursor, snapshots and their ids.
if call('HGET', META, 'life') ~= ARGV[5] then return {{}, {}, '0', {}} end
local function past(key, seq)
  return seq == '' and {} or call('ZRANGEBYSCORE', key, '(' .. seq, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4])
end
local scanned = ARGV[3] == '' and {'0', {}} or call('HSCAN', SNAPSHOTS, ARGV[3], 'COUNT', ARGV[4])
return {past(JUMPS, ARGV[1]), past(OTHERS, ARGV[2]), scanned[1], scanned[2]}
