-- Shared: the path, which is the entries of the log that lead to a head. An entry follows the one before it, unless a jump
-- says otherwise.
-- A jump is "seq after skip depth messages": the entry `seq` follows the entry `after`; `skip` is a jump further down the
-- same path (0: none), `depth` how many jumps there are on it up to this one, and `messages` how many messages before it.
-- Skips are those of Myers' skew-binary lists: passing n jumps takes log n steps, adding one takes O(1).
local START = {seq = 1, after = 0, skip = 0, depth = 0, messages = 0}  -- of the range that no jump leads to
local MOST_RANGES = 500  -- in one answer: a millisecond or two

local function jump_in(kept, score)
  local seq, after, skip, depth, messages =
    string.match(opened('jumps', 'jump', kept), '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not seq or seq ~= score then damaged('jumps') end
  return {seq = tonumber(seq), after = tonumber(after), skip = tonumber(skip), depth = tonumber(depth),
          messages = tonumber(messages)}
end

-- Return the jump that leads to the range of the log that holds `seq`.
local function jump_at(seq)
  if not ANY_JUMPS then return START end
  local found = call('ZREVRANGEBYSCORE', JUMPS, seq, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return found[1] and jump_in(found[1], found[2]) or START
end

-- Return the jump before this one on its path. Depths show whether one is missing.
local function below(jump)
  local found = jump_at(jump.after)
  if found.depth ~= jump.depth - 1 then damaged('jumps') end
  return found
end

local function skipped(jump)
  if jump.skip == 0 then return START end
  local found = jump_at(jump.skip)
  if found.seq ~= jump.skip then damaged('jumps') end
  return found
end

-- Of the jumps on the path down from this one, the last that is past `seq`; and the one below it, which is not.
local function last_past(jump, seq)
  while true do
    if jump.skip > seq then
      jump = skipped(jump)
    else
      local next_jump = below(jump)
      if next_jump.depth == 0 or next_jump.seq <= seq then return jump, next_jump end
      jump = next_jump
    end
  end
end

-- The range of the path that holds `seq`, or else the nearest below: its jump, and its last entry on the path, which is
-- `last` for the range of the jump itself.
local function range_at(jump, last, seq)
  if jump.depth == 0 or jump.seq <= seq then return jump, last end
  local past, found = last_past(jump, seq)
  return found, past.after
end

local function on_path(head, seq)
  if seq == head then return true end
  local jump, last = range_at(jump_at(head), head, seq)
  return jump.seq <= seq and seq <= last
end

local function messages_in(first, last)
  return first > last and 0 or last - first + 1 - (ANY_OTHERS and call('ZCOUNT', OTHERS, first, last) or 0)
end

-- Count the messages on the path to `head` after `low`. All of them exist: visible entries are not reclaimed.
local function messages_behind(head, low)
  local top = jump_at(head)
  if top.depth == 0 or top.seq <= low then return messages_in(math.max(top.seq, low + 1), head) end
  local past, found = last_past(top, low)
  return messages_in(top.seq, head) + top.messages - past.messages
    + messages_in(math.max(found.seq, low + 1), past.after)
end

local function put_jump(seq, after)
  local before = jump_at(after)
  local skip = skipped(before)
  local far = before.depth - skip.depth == skip.depth - skipped(skip).depth and skip.skip
    or before.depth > 0 and before.seq or 0
  local messages = before.messages + messages_in(before.seq, after)
  local text = seq .. ' ' .. after .. ' ' .. far .. ' ' .. (before.depth + 1) .. ' ' .. messages
  call('ZADD', JUMPS, seq, sealed('jump', text))
end

-- The ranges "first-last" of the path to `head` from `last` down to `low`, the last one first, until `enough` messages
-- stand in them. At most MOST_RANGES; then also the head to go on from.
local function ranges_down(head, last, low, enough)
  local jump, high = range_at(jump_at(head), head, last)
  local ranges, found, some, at, used = {}, 0, {}, 1, 0
  high = math.min(high, last)
  while high >= low do
    local first = math.max(jump.seq, low)
    if first <= high then
      ranges[#ranges + 1] = first .. '-' .. high
      if enough then found = found + messages_in(first, high) end
    end
    if jump.depth == 0 or jump.seq <= low or (enough and found >= enough) then break end
    if #ranges >= MOST_RANGES then return ranges, jump.after end
    -- Jumps of a path often stand side by side: fetch several at a time, twice as many as were of use the last time.
    high = jump.after
    while some[at] and tonumber(some[at + 1]) > high do at = at + 2 end
    if not some[at] then
      local count = math.max(1, math.min(2 * used, 64))
      some, at, used = call('ZREVRANGEBYSCORE', JUMPS, high, '-inf', 'WITHSCORES', 'LIMIT', 0, count), 1, 0
    end
    local next_jump = some[at] and jump_in(some[at], some[at + 1]) or START
    if next_jump.depth ~= jump.depth - 1 then damaged('jumps') end
    jump, at, used = next_jump, at + 2, used + 1
  end
  return ranges, 0
end

-- The seqs of one class of others on the path to `head`, from `last` down to `low`, behind those in `found`.
local function others_down(head, last, low, class, found)
  local listed = call('ZREVRANGEBYSCORE', OTHERS, last, low, 'WITHSCORES')
  local jump, high
  for i = 1, #listed, 2 do
    local letter, seq = string.match(opened('others', 'other', listed[i]), '^(%a)(%d+)$')
    if seq ~= listed[i + 1] then damaged('others') end
    if letter == class then
      seq = tonumber(seq)
      if not jump then jump, high = jump_at(head), head end
      jump, high = range_at(jump, high, seq)
      if jump.seq <= seq and seq <= high then found[#found + 1] = seq end
    end
  end
  return found
end
