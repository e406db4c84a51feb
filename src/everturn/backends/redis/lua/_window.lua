-- Shared by reads: which ranges of a path hold the entries that are asked for.
local MOST_RANGES = 1000  -- in one answer: two milliseconds

-- Take the latest `wanted` messages of the range from `first` to `high`, which holds as many: append their ranges, without
-- the other entries between them, to `ranges`. Returns the seq of the oldest of them.
local function messages_down(first, high, wanted, ranges)
  if not ANY_OTHERS and wanted > 0 then
    ranges[#ranges + 1], ranges[#ranges + 2] = high - wanted + 1, high
    return high - wanted + 1
  end
  local step, oldest, others = 16, 0, other_functions()
  while wanted > 0 do
    local listed = call('ZREVRANGEBYSCORE', OTHERS, high, first, 'WITHSCORES', 'LIMIT', 0, step)
    local is_last = #listed < 2 * step
    for i = 1, #listed + (is_last and 1 or 0), 2 do
      local other = listed[i] and others.other_in(listed[i], listed[i + 1]) or first - 1
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
  local path, begins, after, depth, high = ANY_JUMPS and path_functions(), 1, 0, 0, head  -- one range, if there are no jumps
  if path then
    local jump
    jump, high = path.range_at(path.jump_at(head), head, last)
    begins, after, depth = jump.seq, jump.after, jump.depth
  end
  local ranges, some, at, used, walked = {}, {}, 1, 0, 0
  local rest, left, start, cut = 0, limit, 0, false
  high = math.min(high, last)
  while high >= low do
    local first = math.max(begins, low)
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
    if depth == 0 or begins <= low then break end
    if walked >= MOST_RANGES then
      rest = after
      break
    end
    -- Jumps of a path often stand side by side: fetch several at a time, twice as many as were of use the last time.
    high = after
    while some[at] and tonumber(some[at + 1]) > high do at = at + 2 end
    if not some[at] then
      local count = math.max(1, math.min(2 * used, 64))
      some, at, used = call('ZREVRANGEBYSCORE', JUMPS, high, '-inf', 'WITHSCORES', 'LIMIT', 0, count), 1, 0
    end
    local expected = depth - 1
    if some[at] then
      begins, after, depth = path.numbers_in(some[at], some[at + 1])
      begins, after, depth = tonumber(begins), tonumber(after), tonumber(depth)
    else
      begins, after, depth = 1, 0, 0
    end
    if depth ~= expected then damaged('jumps') end
    at, used = at + 2, used + 1
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
  local ranges, pairs_of_seqs = window.ranges, {}
  for i = 1, #ranges, 2 do pairs_of_seqs[(i + 1) / 2] = string.format('%d,%d', ranges[i], ranges[i + 1]) end
  return string.format('%d %d %d %d ', window.rest, window.left, window.start, window.cut and 1 or 0)
    .. table.concat(pairs_of_seqs, ',')
end
