# Threads that wait for locks. Run as: locks.rb WAY.
# frozen_string_literal: true

def lock_both(first, second, mine, theirs)
  first.synchronize do
    mine << true
    theirs.pop
    second.synchronize { raise 'never' }
  end
end

def deadlock
  a = Mutex.new
  b = Mutex.new
  one = Queue.new
  two = Queue.new
  pair = [Thread.new { lock_both(a, b, one, two) }, Thread.new { lock_both(b, a, two, one) }]
  pair.zip(%w[buyer seller]) { |thread, name| thread.name = name }
  Thread.pass until pair.all? { |thread| thread.status == 'sleep' && thread.backtrace.any? { |line| line.include?('lock_both') } }
end

# One has what all others want, and waits for something else.
def queue_up
  lock = Mutex.new
  taken = Queue.new
  Thread.new { lock.synchronize { taken << true; sleep } }.name = 'keeper'
  taken.pop
  Thread.new { loop { sleep 0.001 } }
  waiting = Array.new(4) { |i| Thread.new { lock.synchronize { raise 'never' } }.tap { |thread| thread.name = "waits #{i}" } }
  Thread.pass until waiting.all? { |thread| thread.status == 'sleep' }
end

def compute
  3.times { |i| Thread.new { loop { (1..1000).sum } }.name = "computes #{i}" }
end

{ 'deadlock' => method(:deadlock), 'queue' => method(:queue_up), 'compute' => method(:compute) }.fetch(ARGV[0]).call
puts 'ready'
$stdout.flush
loop { sleep 1 }
