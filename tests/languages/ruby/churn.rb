# Methods, blocks, threads, fibers and garbage that come and go, with results that are checked. Ends when its input does, and
# says "well" if all were right.
# frozen_string_literal: true

def recurse(depth)
  depth.zero? ? 0 : 1 + recurse(depth - 1)
end

# Each thread has names of its own, since another could make the method anew before it is called.
def make_methods(number)
  name = "made_#{Thread.current[:number]}_#{number % 50}"
  Object.class_eval("def #{name}(x)\n  [x].map { |y| y + #{number} }.first\nend", "made.rb", 1)
  send(name, 1) == number + 1
end

def make_garbage
  Array.new(500) { |i| "text #{i}" * 5 }.sum(&:size) == (0...500).sum { |i| "text #{i}".size * 5 }
end

def make_fibers
  fibers = Array.new(5) { |i| Fiber.new { |x| 3.times { x = Fiber.yield(x + i) }; :done } }
  fibers.each_with_index.all? { |fiber, i| fiber.resume(1) == 1 + i && fiber.resume(2) == 2 + i }
end

def make_threads
  Array.new(4) { |i| Thread.new { recurse(50 + i) } }.each_with_index.all? { |thread, i| thread.value == 50 + i }
end

def work(over)
  number = 0
  until over[0]
    number += 1
    right = recurse(200) == 200 && make_methods(number) && make_garbage && make_fibers && make_threads
    raise "wrong in round #{number}" unless right
  end
end

over = [false]
workers = Array.new(3) do |number|
  Thread.new do
    Thread.current[:number] = number
    work(over)
  end
end
puts 'ready'
$stdout.flush
$stdin.read
over[0] = true
workers.each(&:join)
puts 'well'
