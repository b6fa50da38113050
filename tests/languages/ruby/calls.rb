# Ways in which Ruby calls Ruby. The innermost method says what the language itself has of its calls, then "ready", then waits.
# Run as: calls.rb WAY [END]. END: "sleep", "spin", or the name of a signal that the program sends itself.
# frozen_string_literal: true

def wait
  # One line: the call that is told of is where it waits, too.
  tell(caller_locations(0)); finish
end

# A call a line: label, file, line.
def tell(locations)
  locations.each { |at| puts [at.label, at.path, at.lineno].join("\t") }
  puts 'ready'
  $stdout.flush
end

def finish
  case ARGV[1] || 'sleep'
  when 'sleep'
    sleep 1000
  when 'spin'
    spin
  else
    Process.kill(ARGV[1], Process.pid)
    sleep 1000
  end
end

def spin
  i = 0
  while true
    i = (i + 1) % 1000
  end
end

class Shop
  def self.open(depth)
    new.pay(depth)
  end

  def pay(depth)
    return pay(depth - 1) if depth > 0

    [3, 1].sort_by { |price| weigh(price) }
  end

  def weigh(price)
    [price].each do |one|
      [one].map { |two| wait }
    end
  end

  def method_missing(name, *arguments)
    wait
  end

  def respond_to_missing?(*)
    true
  end
end

module Checks
  def pay(depth)
    super
  end
end

class Corner < Shop
  prepend Checks
  define_method(:defined) { |depth| pay(depth) }
end

def rescues
  begin
    raise 'sold out'
  rescue StandardError
    begin
      1
    ensure
      wait
    end
  end
end

# Longer than the first block of the table of lines.
LONG = "def long\n#{(1..300).map { |i| "  a#{i} = #{i}" }.join("\n")}\n  wait\nend"

WAYS = {
  'calls' => -> { Shop.open(3) },
  'missing' => -> { Shop.new.anything(1) },
  'super' => -> { Corner.new.defined(1) },
  'rescues' => -> { rescues },
  'eval' => -> { eval("\nwait", binding, 'text.rb', 7) },
  'long' => lambda {
    eval(LONG, TOPLEVEL_BINDING, 'long.rb', 1)
    long
  },
  'fiber' => -> { Fiber.new { Shop.open(1) }.resume },
  'enumerator' => -> { Enumerator.new { |values| wait; values << 1 }.next },
  'times' => -> { 2.times { |i| wait } },
  'deep' => -> { Shop.open(1000) },
}.freeze

WAYS.fetch(ARGV[0]).call
