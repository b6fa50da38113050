# Threads that wait in different ways. For each it says what the language itself has of it: "THREAD tid name", then its calls.
# frozen_string_literal: true

def waits_for_queue(queue)
  queue.pop
end

def waits_for_io(pipe)
  pipe.read(1)
end

def waits_for_condition(mutex, condition)
  mutex.synchronize { condition.wait(mutex) }
end

def sleeps
  sleep
end

def joins(other)
  other.join
end

mutex = Mutex.new
others = [
  Thread.new { waits_for_queue(Queue.new) },
  Thread.new { waits_for_io(IO.pipe[0]) },
  Thread.new { waits_for_condition(Mutex.new, ConditionVariable.new) },
  Thread.new { sleeps },
]
others << Thread.new { joins(others[0]) }
others << Thread.new { Fiber.new { waits_for_queue(Queue.new) }.resume }
mutex.lock
others << Thread.new { mutex.lock }
names = ['queue', 'pipe', 'condition', 'sleeper', 'joins the thread that waits for a queue', 'fiber', 'mutex']
others.zip(names) { |thread, name| thread.name = name }
Thread.pass until others.all? { |thread| thread.status == 'sleep' }
others.each do |thread|
  puts "THREAD\t#{thread.native_thread_id}\t#{thread.name}"
  thread.backtrace_locations.each { |at| puts [at.label, at.path, at.lineno].join("\t") }
end
puts 'ready'
$stdout.flush
sleep 1000
