<?php

// A file's own code, and a function of it.
function from_included(): void
{
    \Market\wait();
}

from_included();
