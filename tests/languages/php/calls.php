<?php
// Ways in which PHP calls PHP. The innermost function says what the language itself has of its calls, then "ready", then waits.
// Run as: calls.php WAY [END]. END: "sleep", "spin", or the number of a signal that the program sends itself.

namespace Market;

function wait(): void
{
    // One line: the call that is told of is where it waits, too.
    tell(__LINE__, debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS)); finish();
}

// A call a line: class, function, and where it was called: file, line. What is not known is empty.
function tell(int $line, array $calls): void
{
    foreach ($calls as $call) {
        echo $call['class'] ?? '', "\t", $call['function'], "\t", $call['file'] ?? '', "\t", $call['line'] ?? '', "\n";
    }
    echo $line, "\nready\n";
}

function finish(): void
{
    global $argv;
    $end = $argv[2] ?? 'sleep';
    if ($end === 'sleep') {
        sleep(1000);
    } elseif ($end === 'spin') {
        spin();
    } else {
        posix_kill(posix_getpid(), (int) $end);
    }
}

function spin(): void
{
    $i = 0;
    while (true) {
        $i = ($i + 1) % 1000;
    }
}

class Shop
{
    public static function open(int $depth): void
    {
        (new Shop)->pay($depth);
    }

    public function pay(int $depth): void
    {
        if ($depth > 0) {
            $this->pay($depth - 1);
        } else {
            array_map(fn ($x) => $this->sort(), [1]);
        }
    }

    private function sort(): void
    {
        $goods = [2, 1];
        usort($goods, [$this, 'compare']);
    }

    public function compare($a, $b): int
    {
        wait();
        return 0;
    }

    public function __get($name)
    {
        wait();
    }

    public function __toString(): string
    {
        return $this->price;
    }
}

function goods()
{
    yield 1;
    wait();
    yield 2;
}

$ways = [
    'calls' => fn () => Shop::open(3),
    'magic' => fn () => strlen(new Shop),
    'generator' => function () {
        foreach (goods() as $one) {
        }
    },
    'include' => function () {
        include __DIR__ . '/included.php';
    },
    'eval' => function () {
        eval("\n\\Market\\wait();");
    },
    'anonymous' => function () {
        $thing = new class {
            public function run()
            {
                wait();
            }
        };
        call_user_func([$thing, 'run']);
    },
    'deep' => fn () => Shop::open(1000),
];
if (class_exists('Fiber')) {
    $ways['fiber'] = function () {
        $fiber = new \Fiber(function () {
            Shop::open(1);
        });
        $fiber->start();
    };
}
$ways[$argv[1]]();
