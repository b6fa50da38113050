%% A process that runs in loop/1, called by outer/1, and says where Erlang sees it: "at loop/1 outer/1 ... ready".
-module(running).
-export([main/0, outer/1, loop/1]).

main() ->
    Runner = spawn(fun() -> outer(1) end),
    Frames = stack_of(Runner),
    io:format("at ~s~nready~n", [lists:join(" ", [io_lib:format("~s:~s/~b", [M, F, A]) || {M, F, A, _} <- Frames])]).

%% Not before it has come to the loop.
stack_of(Runner) ->
    case process_info(Runner, current_stacktrace) of
        {current_stacktrace, [{running, loop, 1, _} | _] = Frames} -> Frames;
        _ -> stack_of(Runner)
    end.

outer(N) ->
    X = loop(N),
    X + 1.

loop(N) when N < 0 -> 0;
loop(N) -> loop(N + 1).
