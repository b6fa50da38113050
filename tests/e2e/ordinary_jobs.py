"""Jobs for programs that people have, each with a result that can be compared: what ordinary_programs_test runs.

A job is a script for bash that runs in an empty folder. Where it prints what must be right in any case, `result` is found in it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    programs: str  # that it needs, with blanks between
    script: str
    result: str = ""
    quick: bool = False  # whether it is run by default
    minute: bool = False  # whether `tests/run.sh --all` does it for a minute


# Sixty thousand lines, the same each time.
TEXT = "seq -f 'line %06.0f of a text that is compressed' 1 60000 >text"


def lasts(seconds, script):
    """Whether the script has lasted at least so long: no call was ended early."""
    return f"b=$(date +%s%N); {script}; [ $(($(date +%s%N) - b)) -ge {seconds}000000000 ] && echo long"


JOBS = [
    # Compressing and packing.
    Job("pigz", "pigz", f"{TEXT}; pigz -k -p 4 text; pigz -dc text.gz | cmp - text; pigz -l text.gz | wc -l", "2", quick=True),
    Job("xz", "xz", f"{TEXT}; xz -T4 -1 --block-size=256KiB -k text; xz -dc text.xz | cmp - text && echo equal", "equal"),
    Job("zstd", "zstd", f"{TEXT}; zstd -q -T4 -12 text; zstd -qdc text.zst | cmp - text && echo equal", "equal"),
    Job("bzip2", "bzip2", f"{TEXT}; bzip2 -k text; bzip2 -dc text.bz2 | cmp - text && echo equal", "equal"),
    Job("lzip", "lzip", f"{TEXT}; lzip -1 -k text; lzip -t text.lz; lzip -dc text.lz | cmp - text && echo equal", "equal"),
    Job("7z", "7z", f"{TEXT}; 7z a -bd -mmt=4 -mx=3 out.7z text >/dev/null; 7z x -so out.7z | cmp - text && echo equal", "equal"),
    Job("zip", "zip unzip", f"{TEXT}; zip -q out.zip text; unzip -p out.zip text | cmp - text && unzip -tq out.zip", "No errors"),
    Job("tar", "tar gzip", f"""{TEXT}; mkdir tree; (cd tree && split -a 4 -l 200 ../text part-)
tar czf tree.tgz tree; mkdir back; tar xzf tree.tgz -C back; diff -r tree back/tree && tar tzf tree.tgz | wc -l""", "301", quick=True),
    Job("cpio", "cpio", f"{TEXT}; split -l 1000 text part-; ls part-* | cpio -o --quiet | cpio -t --quiet | wc -l", "60"),
    # Building.
    Job("make", "make gcc", """for i in $(seq 8); do echo "int f$i(int x) { return x * $i; }" >f$i.c; done
{ seq -f 'int f%g(int);' 8; echo 'int printf(const char*, ...); int main(void) { int s = 0;'
  seq -f 's += f%g(2);' 8; echo 'printf("%d\\n", s); return 0; }'; } >main.c
printf 'prog: %s\\n\\t$(CC) -o $@ $^\\n' "$(echo {main,f{1..8}}.o)" >Makefile
make -s -j4 prog && ./prog""", "72", quick=True),
    Job("clang", "clang-14", """echo 'int printf(const char*, ...); int main(void) { printf("%d\\n", 6 * 7); return 0; }' >a.c
for i in 1 2 3; do clang-14 -O2 -c a.c -o a$i.o && cmp a1.o a$i.o; done; clang-14 a1.o -o a && ./a""", "42"),
    Job("gfortran", "gfortran", """cat >a.f90 <<'END'
program sums
  integer :: i
  real(8) :: total = 0
  do i = 1, 20000000
    total = total + 1.0d0 / i
  end do
  print '(f10.6)', total
end program
END
gfortran -O1 a.f90 -o a && ./a""", "17.3", quick=True),
    Job("nasm", "nasm ld", """cat >a.asm <<'END'
section .text
global _start
_start: mov edi, 5
        mov eax, 60
        syscall
END
nasm -f elf64 a.asm && ld a.o -o a && ./a; echo $?""", "5"),
    Job("flex-bison", "flex bison gcc m4", """cat >a.l <<'END'
%option noyywrap noinput nounput
%%
[a-z]+ { extern int words; words++; }
.|\\n  { }
%%
int words;
int main(void) { while (yylex()) {} return printf("%d words\\n", words) < 0; }
END
printf '%%token A\\n%%%%\\nall: A | all A;\\n' >g.y; bison -o g.c g.y && wc -l <g.y
flex -o a.c a.l && gcc a.c -o a && echo 'one two 3 four' | ./a""", "3 words"),
    Job("objdump", "objdump nm readelf strip", """cp /bin/bash b; objdump -d b | tail -n 200000 | sha256sum; readelf -aW b | wc -l; strip b
nm -D b | wc -l"""),
    # Languages.
    Job("perl", "perl", """perl -MDigest::SHA=sha256_hex -e '
my %h; $h{$_ % 1009} .= $_ for 1 .. 300000; my @pids;
for my $k (1 .. 5) { my $p = fork; if (!$p) { exit $k } push @pids, $p }
my $sum = 0; for (@pids) { waitpid $_, 0; $sum += $? >> 8 } print "children $sum\\n";
print sha256_hex(join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h), "\\n"'""", "children 15", quick=True),
    Job("ruby", "ruby", """ruby -e '
q = Queue.new; t = 4.times.map { |n| Thread.new { 5000.times { |i| q << i * n } } }; t.each(&:join)
s = 0; s += q.pop until q.empty?; puts s
trap("USR1") { puts "usr1" }; Process.kill("USR1", $$); sleep 0.01
p(5.times.map { |n| fork { exit n } }.map { |c| Process.wait2(c)[1].exitstatus })
r, w = IO.pipe; w << "x" * 60000; w.close; puts r.read.size'""", "74985000", quick=True),
    Job("php", "php", """php -r '$a = []; for ($i = 0; $i < 300000; $i++) $a[$i % 997][] = md5((string)$i);
ksort($a); echo md5(json_encode($a)), PHP_EOL; echo preg_match_all("/ab/", json_encode($a)), PHP_EOL;
usort($a, fn($x, $y) => count($x) <=> count($y)); echo count($a[0]), PHP_EOL;'""", "300", quick=True),
    Job("lua", "lua5.4", """lua5.4 -e 'local t = {} for i = 1, 400000 do t[i] = (i * 7919) % 100003 end table.sort(t)
local s = 0 for i, v in ipairs(t) do s = (s * 31 + v) % 1000000007 end print(s)
local c = coroutine.wrap(function() for i = 1, 1e5 do coroutine.yield(i) end return "end" end)
local last repeat last = c() until last == "end" print(last)'""", "end"),
    Job("luajit", "luajit", """luajit -e 'local s = 0 for i = 1, 5e7 do s = (s + i * i) % 1000003 end print(s)
local t = {} for i = 1, 2e5 do t[#t + 1] = tostring(i) end print(#table.concat(t))'""", "1088895", quick=True),
    Job("gawk", "gawk", """seq 300000 | gawk '{ s[$1 % 1013] += $1; n[length($1)]++ } END { for (i = 0; i < 1013; i++) t = (t * 31 + s[i]) % 1000003
print t; for (i = 1; i <= 6; i++) printf "%d ", n[i]; print ""; while (("seq 3" | getline x) > 0) print x }'""", "9 90 900 9000 90000 200001"),
    Job("erlang", "erl", """erl -noshell -eval '
P = self(), N = 64, [spawn(fun() -> P ! lists:sum([X * I rem 97 || X <- lists:seq(1, 1500)]) end) || I <- lists:seq(1, N)],
S = lists:sum([receive V -> V end || _ <- lists:seq(1, N)]), T = ets:new(t, [public]),
[ets:insert(T, {I, I * I}) || I <- lists:seq(1, 50000)], io:format("~p ~p~n", [S, ets:info(T, size)]), halt(0).'""", "50000", quick=True, minute=True),
    Job("guile", "guile", """guile --no-auto-compile -c '(use-modules (ice-9 threads))
(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(for-each (lambda (x) (display x) (newline)) (par-map fib (list 20 21 22 23 24 25)))'""", "75025"),
    Job("sbcl", "sbcl", """sbcl --noinform --non-interactive --no-userinit --eval '
(let ((h (make-hash-table)) (s 0)) (dotimes (i 400000) (push i (gethash (mod i 997) h)))
  (maphash (lambda (k v) (setf s (mod (+ (* s 31) k (length v)) 1000003))) h) (gc :full t) (format t "~a ~a~%" s (hash-table-count h)))'""",
        "997", quick=True),
    Job("clisp", "clisp", """clisp -q -x '(let ((s 0)) (dotimes (i 200000) (setf s (mod (+ (* s 31) i) 1000003))) (print (list s (expt 3 200))))'"""),
    Job("prolog", "swipl", """cat >q.pl <<'END'
queens(N, Qs) :- numlist(1, N, Ns), select_all(Ns, [], Qs).
select_all([], Qs, Qs).
select_all(Un, Safe, Qs) :- select(Q, Un, Rest), \\+ attack(Q, 1, Safe), select_all(Rest, [Q|Safe], Qs).
attack(X, N, [Y|_]) :- X is Y + N ; X is Y - N.
attack(X, N, [_|Ys]) :- N1 is N + 1, attack(X, N1, Ys).
:- initialization((findall(Q, queens(7, Q), L), length(L, C), concurrent_maplist([X,Y]>>(Y is X * X), [1,2,3], S),
   format("~w ~w~n", [C, S]), halt)).
END
swipl -q q.pl </dev/null""", "40 [1,4,9]", quick=True),
    Job("tcl", "tclsh", """tclsh <<'END'
set s 0; for {set i 0} {$i < 200000} {incr i} { set s [expr {($s * 31 + $i) % 1000003}] }; puts $s
after 10 {set done yes}; vwait done; puts $done; puts [exec echo from a child]
END""", "from a child"),
    Job("expect", "expect", """expect <<'END'
log_user 0
spawn sh -c {read x; echo "got $x"; read y; exit 3}
send "one\\r"; expect "got one"; send "two\\r"; expect eof; puts "end [lindex [wait] 3]"
END""", "end 3"),
    Job("bc", "bc dc", """echo 'scale=600; a(1)*4' | bc -l | sha256sum; echo '2 900 ^ p' | dc | sha256sum"""),
    Job("pari", "gp", """echo 'print(factor(2^101-1)); print(sum(n=1,200000,eulerphi(n)))' | gp -q -f -s 200M""", "12158598918"),
    Job("m4", "m4", """cat >a.m4 <<'END'
define(`times', `ifelse($1, 0, , `x`'times(decr($1))')')dnl
times(800)
END
m4 -L 5000 a.m4 | wc -c""", "801"),
    Job("jq", "jq", """seq 60000 | jq -s 'map({n: ., odd: (. % 2 == 1)}) | group_by(.odd) | map(length)' -c""", "[30000,30000]"),
    # Texts, pictures, sounds.
    Job("ffmpeg-video", "ffmpeg", """ffmpeg -nostdin -v error -f lavfi -i testsrc=size=160x120:rate=25:duration=2 -c:v libx264 -preset veryfast -threads 4 \\
  -f mp4 -bitexact out.mp4 && ffmpeg -nostdin -v error -i out.mp4 -f framemd5 - | tail -n 3"""),
    Job("ffmpeg-sound", "ffmpeg", """ffmpeg -nostdin -v error -f lavfi -i sine=frequency=440:duration=20 -c:a flac out.flac &&
ffmpeg -nostdin -v error -i out.flac -f md5 -""", "MD5=", quick=True),
    Job("sox", "sox", """sox -R -n -r 44100 -b 16 a.wav synth 5 sine 440 vol 0.5; sox -R a.wav b.wav reverse speed 1.5 norm -3
sox -R a.wav -n stat 2>&1 | head -n 3; sox b.wav -t raw - | sha256sum"""),
    Job("flac", "flac sox", """sox -R -n -b 16 a.wav synth 20 sine 330; flac -s -5 a.wav && flac -s -t a.flac && flac -s -dc a.flac | cmp - a.wav && echo equal""",
        "equal"),
    Job("gnuplot", "gnuplot", """gnuplot -e 'set term dumb 60 20; plot sin(x), cos(x)'; gnuplot -e 'set term svg; set output "a.svg"; splot x*y'; wc -l <a.svg"""),
    Job("graphviz", "dot", """{ echo 'digraph {'; for i in $(seq 150); do echo "n$i -> n$((i * 7 % 150 + 1));"; done; echo '}'; } | dot -Tplain | sha256sum"""),
    Job("ghostscript", "gs pdftotext", """{ echo '%!PS'; echo '/Courier findfont 12 scalefont setfont'
for i in $(seq 40); do echo "72 500 moveto (page $i is well) show showpage"; done; } >a.ps
gs -q -dBATCH -dNOPAUSE -dSAFER -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps && pdftotext a.pdf - | grep -c well""", "40", quick=True),
    Job("groff", "groff", """{ echo '.TH X 1'; seq -f '.SH PART %g' 200; } >a.1; groff -man -Tascii -P-bcu a.1 | grep -c PART"""),
    Job("vim", "vim.tiny", f"{TEXT}; vim.tiny -u NONE -es -N -c '%s/line/LINE/g' -c 'g/00$/d' -c 'wq' text </dev/null; sha256sum text"),
    Job("sort", "sort uniq join", f"""{TEXT}; sort --parallel=4 -S 2M -R --random-source=/bin/sh text | sort -S 2M --parallel=4 | cmp - text && echo equal
sort text text | uniq -c | sort -rn | head -n 1""", "equal", quick=True),
    Job("find", "find grep xargs", """for i in $(seq 40); do mkdir -p d$i/e; seq $i >d$i/e/f; done
find . -type f -print0 | xargs -0 -P 4 -n 5 grep -l 39 | sort; find . -name f -size +10c | wc -l"""),
    Job("diff", "diff patch", f"{TEXT}; sed 's/7 of/7 OF/' text >other; diff -u text other >p; patch -s text p; cmp text other && echo equal", "equal"),
    Job("parallel", "parallel", "seq 20 | parallel --will-cite -k -j 4 'expr {} \\* {}' | tail -n 1", "400"),
    # Data.
    Job("git", "git", """export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main r; cd r; git config user.name a; git config user.email a@b; git config gc.autoDetach false
for i in $(seq 12); do seq $i 500 >f$i; git add .; git commit -qm "c$i"; done
git gc -q; git fsck --full; git clone -q . ../c; git -C ../c log --format=%H | sha256sum; git grep -c 499 | wc -l""", "12", quick=True),
    Job("sqlite3", "sqlite3", """sqlite3 a.db "pragma journal_mode=wal; create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) insert into t select i, hex(i * 7919) from n;
create index x on t(b); select count(*), sum(length(b)), max(b) from t; pragma integrity_check;" """, "ok", quick=True),
    Job("gpg", "gpg", f"""{TEXT}; export GNUPGHOME=$PWD/keys; mkdir -m 700 keys
echo secret | gpg --batch -q --pinentry-mode loopback --passphrase-fd 0 --s2k-count 65536 -c text
echo secret | gpg --batch -q --pinentry-mode loopback --passphrase-fd 0 -d text.gpg 2>/dev/null | cmp - text && echo equal
gpgconf --kill gpg-agent""", "equal"),
    Job("openssl", "openssl", """openssl ecparam -genkey -name prime256v1 -noout -out k.pem; openssl pkey -in k.pem -pubout -out p.pem; echo text >t
openssl dgst -sha256 -sign k.pem -out s t; openssl dgst -sha256 -verify p.pem -signature s t
openssl enc -aes-256-cbc -pbkdf2 -iter 20000 -k pass -in /bin/bash -out e; openssl enc -d -aes-256-cbc -pbkdf2 -iter 20000 -k pass -in e | cmp - /bin/bash && echo equal""",
        "Verified OK", quick=True),
    Job("rsync", "rsync", f"""{TEXT}; mkdir a b; (cd a && split -l 500 ../text part-); rsync -a a/ b/ && diff -r a b && echo more >>a/part-aa
rsync -ai --no-times a/ b/ | cut -c1-2 | sort | uniq -c; diff -r a b && echo equal""", "equal"),
    Job("ssh-keygen", "ssh-keygen", """ssh-keygen -q -t ed25519 -N '' -C c -f k; echo text >t; ssh-keygen -q -Y sign -f k -n file t 2>/dev/null
echo "c $(cat k.pub)" >allowed; ssh-keygen -Y verify -f allowed -I c -n file -s t.sig <t | cut -d' ' -f1-2""", 'Good "file"'),
    # Machines, processes, sockets.
    Job("sysbench", "sysbench", """sysbench cpu --threads=4 --events=400 --time=0 --cpu-max-prime=2000 run | grep 'total number of events'
sysbench mutex --threads=8 --mutex-locks=2000 --mutex-loops=100 run | grep 'total number of events'
sysbench threads --threads=8 --events=300 --time=0 run | grep 'total number'""", "400", quick=True),
    Job("stress-ng", "stress-ng", "stress-ng --quiet --fork 1 --fork-ops 60 --pthread 1 --pthread-ops 60 --sigsegv 1 --sigsegv-ops 300; echo $?", "0"),
    Job("socat", "socat", """head -c 3000000 /bin/bash >f; socat -u OPEN:f UNIX-LISTEN:s & while [ ! -S s ]; do sleep 0.1; done
socat -u UNIX-CONNECT:s CREATE:g; wait; cmp f g && echo equal""", "equal", quick=True),
    Job("bash", "bash", """for i in $(seq 60); do (exit $((i % 7))) & pids="$pids $!"; done; s=0; for p in $pids; do wait $p; s=$((s + $?)); done; echo $s
trap 'echo usr1' USR1; kill -USR1 $BASHPID; coproc cat; echo hello >&"${COPROC[1]}"; read -r x <&"${COPROC[0]}"; echo "$x"
exec {COPROC[1]}>&-; wait $COPROC_PID; seq 5 | while read -r n; do echo $((n * n)); done | tail -n 1""", "178"),
    Job("tmux", "tmux", """tmux -S s -f /dev/null new-session -d -x 80 -y 24 'echo inside; read x'; until tmux -S s capture-pane -p | grep -q inside; do sleep 0.1; done
tmux -S s capture-pane -p | grep inside; tmux -S s list-windows | wc -l; tmux -S s kill-server""", "inside"),
    Job("strace", "strace", "strace -f -c -o counts sh -c 'for i in 1 2 3; do /bin/true; done; echo traced'; test -s counts && echo counted", "counted"),
    Job("gdb", "gdb", "gdb -nx -batch -ex 'print 6 * 7' -ex 'info line main' /bin/true 2>&1 | head -n 1", "42"),
    Job("qemu", "qemu-system-x86_64", """printf '\\xb8\\x21\\x0e\\xcd\\x10\\xb0\\x00\\xe6\\xf4\\xf4' >boot; truncate -s 510 boot; printf '\\x55\\xaa' >>boot
# Writes 0 to the port that ends qemu with 1.
qemu-system-x86_64 -display none -serial none -monitor none -nodefaults -no-reboot -accel tcg,thread=multi -smp 2 -m 32 \\
  -device isa-debug-exit,iobase=0xf4,iosize=1 -drive file=boot,format=raw,if=ide 2>&1; echo $?""", "1"),
    Job("valgrind", "valgrind", "valgrind -q --tool=none /bin/echo inside; echo $?", "inside"),
    Job("iperf3", "iperf3 jq", """iperf3 -s -p $PORT >/dev/null & s=$!
for i in $(seq 50); do iperf3 -c 127.0.0.1 -p $PORT -n 40M -P 2 -J >j 2>/dev/null && break; sleep 0.2; done
jq '.end.sum_sent.bytes >= 40000000' j; kill $s; wait $s; echo $?""", "true"),
    Job("mosquitto", "mosquitto mosquitto_pub mosquitto_sub", """printf 'listener %s 127.0.0.1\\nallow_anonymous true\\n' $PORT >c
mosquitto -c c >/dev/null 2>&1 & m=$!; until mosquitto_pub -p $PORT -t t -r -q 1 -m kept 2>/dev/null; do sleep 0.1; done
mosquitto_sub -p $PORT -t t -C 1; for i in 1 2 3 4 5; do mosquitto_pub -p $PORT -t u -q 2 -m $i; done; kill $m; wait $m; echo $?""", "kept", quick=True),
    # Takes an interrupted poll() for the end of a connection. The timeout of its calls is five minutes.
    Job("privoxy", "privoxy ab python3", """head -c 4000 /dev/zero | tr '\\0' x >page
python3 -u -m http.server 0 --bind 127.0.0.1 >log 2>/dev/null & w=$!
until u=$(sed -n 's/.* port \\([0-9]*\\).*/\\1/p' log) && [ "$u" ]; do sleep 0.1; done
printf 'confdir /etc/privoxy\\nlisten-address 127.0.0.1:%s\\ntoggle 0\\n' $PORT >c; privoxy --no-daemon c >/dev/null 2>&1 & p=$!
until ab -q -n 1 -X 127.0.0.1:$PORT http://127.0.0.1:$u/page >/dev/null 2>&1; do sleep 0.1; done
ab -q -n 3000 -c 20 -X 127.0.0.1:$PORT http://127.0.0.1:$u/page | grep -E '^(Complete|Failed|HTML)'
kill $p $w; wait $p; echo $?""", "12000000 bytes"),
    Job("knot", "knotd dig", """cat >c <<END
server:
  rundir: $PWD
  listen: 127.0.0.1@$PORT
  user: root
database:
  storage: $PWD
zone:
  - domain: test.
    file: $PWD/zone
END
printf '$TTL 60\\n@ SOA ns.test. a.test. 1 60 60 60 60\\n@ NS ns\\nns A 10.1.2.3\\n' >zone
knotd -c c >/dev/null 2>&1 & k=$!
until dig +short +tries=1 +time=1 -p $PORT @127.0.0.1 ns.test | grep -q 10.1.2.3; do sleep 0.1; done
for i in $(seq 5); do dig +short -p $PORT @127.0.0.1 ns.test; done | sort | uniq -c; kill $k; wait $k; echo $?""", "5 10.1.2.3"),
    # Not as a server: told to end while it starts it aborts now and then, with or without the agent.
    Job("tor", "tor", """tor --quiet --DataDirectory $PWD/d --hash-password x | wc -c
tor --quiet --DataDirectory $PWD/d --verify-config --DisableNetwork 1; echo $?""", "62"),
    # Calls of several threads that a signal would end: compressed data would be cut, a helper would end.
    Job("lbzip2", "lbzip2", f"{TEXT}; cat text text text text >more; lbzip2 -n 3 -k more; lbzip2 -dc more.bz2 | cmp - more && echo equal",
        "equal", quick=True, minute=True),
    Job("fio", "fio", "fio --name=a --rw=randrw --size=4M --bs=4k --runtime=2 --time_based --output=o && grep -c err=.0 o", quick=True,
        minute=True),
    # Without threads, and so interrupted by the signal that wakes the agent at the first dump: the call is made again.
    Job("perl-sleep", "perl", lasts(5, "perl -e 'sleep 1 for 1 .. 5'"), "long", minute=True),
    Job("php-sleep", "php", lasts(5, "php -r 'for ($i = 0; $i < 5; $i++) sleep(1);'"), "long", minute=True),
    Job("vmstat", "vmstat", lasts(3, "vmstat 1 4 | wc -l"), "long", minute=True),
    Job("top", "top", lasts(2, "top -b -n 3 -d 1 | grep -c ^top"), "long", minute=True),
    # Runs its command each second, five times.
    Job("watch", "watch", "timeout 4.5 watch -n 1 -t 'echo >>runs' >/dev/null </dev/null; [ $(wc -l <runs) -le 5 ] && echo few", "few",
        minute=True),
    # For ldapsearch, which has no threads, an interrupted poll() is a lost connection.
    Job("slapd", "slapd ldapsearch", """mkdir db; cat >c <<END
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=test"
rootdn "cn=a,dc=test"
rootpw secret
directory $PWD/db
END
slapd -d 0 -f c -h ldap://127.0.0.1:$PORT/ & s=$!; L="-x -H ldap://127.0.0.1:$PORT/ -D cn=a,dc=test -w secret"
until ldapsearch $L -s base -b '' >/dev/null 2>&1; do sleep 0.1; done
{ printf 'dn: dc=test\\nobjectClass: dcObject\\nobjectClass: organization\\no: t\\ndc: test\\n'
for i in $(seq 30); do printf '\\ndn: cn=p%s,dc=test\\nobjectClass: person\\nsn: s\\ncn: p%s\\n' $i $i; done; } | ldapadd $L >/dev/null
ldapsearch $L -LLL -b dc=test '(sn=s)' cn | grep -c ^cn; kill $s; wait $s; echo $?""", "30"),
]
