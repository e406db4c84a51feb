-- Shared: the path, which is the entries of the log that lead to a head. An entry follows the one before it, unless a jump
-- says otherwise.
-- A jump is "seq after skip depth messages": the entry `seq` follows the entry `after`; `skip` is a jump further down the
-- same path (0: none), `depth` how many jumps there are on it up to this one, and `messages` how many messages before it.
-- Skips are those of Myers' skew-binary lists: passing n jumps takes log n steps, adding one takes O(1).
local START = {seq = 1, after = 0, skip = 0, depth = 0, messages = 0}  -- of the range that no jump leads to
local MOST_RANGES = 500  -- in one answer: a millisecond or two

local function jump_in(kept, score)
  local check, text, seq, after, skip, depth, messages =
    string.match(kept, '^(%x+) ((%d+) (%d+) (%d+) (%d+) (%d+))$')  -- in one step: a path may have thousands
  if seq ~= score or check ~= digest(LIFE .. ' jump ' .. text) then damaged('jumps') end
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

-- The seq of an entry that is no message, and its class, from its member and its score in the sorted set.
local function other_in(kept, score)
  local class, seq = string.match(opened('others', 'other', kept), '^(%a)(%d+)$')
  if seq ~= score then damaged('others') end
  return tonumber(seq), class
end

-- Take the latest `wanted` messages of the range from `first` to `high`, which holds as many: append their ranges, without
-- the other entries between them, to `ranges`. Returns the seq of the oldest of them.
local function messages_down(first, high, wanted, ranges)
  local step, oldest = 16, 0
  while wanted > 0 do
    local listed = ANY_OTHERS and call('ZREVRANGEBYSCORE', OTHERS, high, first, 'WITHSCORES', 'LIMIT', 0, step) or {}
    local is_last = #listed < 2 * step
    for i = 1, #listed + (is_last and 1 or 0), 2 do
      local other = listed[i] and other_in(listed[i], listed[i + 1]) or first - 1
      local low = math.max(other + 1, high - wanted + 1)
      if low <= high then  -- all of these are messages
        ranges[#ranges + 1], ranges[#ranges + 2] = low, high
        wanted, oldest = wanted - (high - low + 1), low
      end
      if wanted == 0 or is_last and not listed[i] then return oldest end
      high = other - 1
    end
    step = 128
  end
  return oldest
end

-- The window of a read: ranges of the path to `head`, the last one first, each as its first and last seq.
-- They reach from `last` down to `low`; with a limit, no further than that many messages need. `bare`: leave out entries that
-- are no messages. At most MOST_RANGES are walked at a time: then `rest` is the head to go on from, and `left` tells how many
-- messages are still to be found. `start` is the seq of the oldest message within the limit, 0 if the limit is not reached;
-- `cut` says that there are older ones.
local function window_down(head, last, low, limit, bare)
  local jump, high = range_at(jump_at(head), head, last)
  local ranges, some, at, used, walked = {}, {}, 1, 0, 0
  local rest, left, start, cut = 0, limit, 0, false
  high = math.min(high, last)
  while high >= low do
    local first = math.max(jump.seq, low)
    if first <= high then
      local there = limit and messages_in(first, high)
      if left == 0 and there > 0 then
        cut = true
        break
      end
      if not bare then ranges[#ranges + 1], ranges[#ranges + 2] = first, high end
      if limit then
        local taken = math.min(there, left)
        cut = there > taken
        local reached = left > 0 and taken == left
        if bare or reached then
          local oldest = messages_down(first, high, taken, bare and ranges or {})
          if reached then start = oldest end
        end
        left = left - taken
        if cut then break end
      end
    end
    walked = walked + 1
    if jump.depth == 0 or jump.seq <= low then break end
    if walked >= MOST_RANGES then
      rest = jump.after
      break
    end
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
  return {ranges = ranges, rest = rest, left = left or 0, start = start, cut = cut, limit = limit}
end

-- Go on below the floor, where only the system messages in `kept` ("seq,seq,...") are visible.
local function kept_down(window, kept, last, low)
  local seqs, ranges = {}, window.ranges
  for seq in string.gmatch(kept, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
  for i = #seqs, 1, -1 do
    local seq = seqs[i]
    if seq >= low and seq <= last then
      if window.limit and window.left == 0 then
        window.cut = true
        return
      end
      ranges[#ranges + 1], ranges[#ranges + 2] = seq, seq
      if window.limit then
        window.left = window.left - 1
        if window.left == 0 then window.start = seq end
      end
    end
  end
end

-- Complete a window: with kept messages, and without entries older than its oldest message, if a limit cuts it there.
local function complete(window, kept, last, low)
  if kept ~= '' and window.rest == 0 and not window.cut then kept_down(window, kept, last, low) end
  local ranges = window.ranges
  while window.cut and ranges[1] and ranges[#ranges - 1] < window.start do
    if ranges[#ranges] >= window.start then
      ranges[#ranges - 1] = window.start
    else
      ranges[#ranges], ranges[#ranges - 1] = nil, nil
    end
  end
end

-- A window as text: "rest left start cut first,last,first,last".
local function window_text(window)
  return window.rest .. ' ' .. window.left .. ' ' .. window.start .. (window.cut and ' 1 ' or ' 0 ')
    .. table.concat(window.ranges, ',')
end

-- The seqs of one class of others on the path to `head`, from `last` down to `low`, behind those in `found`: at most `most`
-- (nil: all). With a bound they are looked through a few at a time.
local function others_down(head, last, low, class, found, most)
  local jump, high = jump_at(head), head
  local listed
  repeat
    listed = most and call('ZREVRANGEBYSCORE', OTHERS, last, low, 'WITHSCORES', 'LIMIT', 0, 64)
      or call('ZREVRANGEBYSCORE', OTHERS, last, low, 'WITHSCORES')
    for i = 1, #listed, 2 do
      local seq, letter = other_in(listed[i], listed[i + 1])
      if letter == class then
        jump, high = range_at(jump, high, seq)
        if jump.seq <= seq and seq <= high then found[#found + 1] = seq end
        if #found == most then return found end
      end
      last = seq - 1
    end
  until not most or #listed < 128
  return found
end
