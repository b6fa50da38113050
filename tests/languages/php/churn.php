<?php

// Functions, objects, generators and garbage that come and go, with results that are checked. Ends when its input does, and says
// "well" if all were right.

function recurse(int $depth): int
{
    return $depth === 0 ? 0 : 1 + recurse($depth - 1);
}

// PHP keeps the code of what it has evaluated until it ends.
function make_functions(int $number): bool
{
    static $made = [];
    $added = $number % 500;
    $made[$added] ??= eval("return function (\$x) { return array_sum(array_map(fn (\$y) => \$y + $added, [\$x])); };");
    return $made[$added](1) === $added + 1;
}

class Cell
{
    public $next;

    public function __destruct()
    {
        recurse(3);
    }
}

function make_garbage(): bool
{
    $texts = [];
    for ($i = 0; $i < 200; $i++) {
        $cell = new Cell();
        $cell->next = $cell;
        $texts[] = str_repeat("text $i", 5);
    }
    gc_collect_cycles();
    return count($texts) === 200;
}

function numbers(int $count)
{
    for ($i = 0; $i < $count; $i++) {
        yield $i;
    }
    return $count;
}

function delegate(int $count)
{
    return yield from numbers($count);
}

function make_generators(): bool
{
    return array_sum(iterator_to_array(delegate(20))) === 190;
}

function sort_with_callbacks(): bool
{
    $values = range(50, 1);
    usort($values, fn ($a, $b) => $a <=> $b);
    return $values === range(1, 50);
}

echo "ready\n";
stream_set_blocking(STDIN, false);
for ($number = 1; !feof(STDIN); $number++) {
    fread(STDIN, 1);
    $right = recurse(200) === 200 && make_functions($number) && make_garbage() && make_generators() && sort_with_callbacks();
    if (!$right) {
        exit("wrong in round $number\n");
    }
}
echo "well\n";
