package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/collect"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

const (
	// JSON of one dump, or of the list of processes.
	maxOutputBytes = 64 << 20
	maxErrorBytes  = 4 << 10
	// stackctl ends so when the dump is partial. It has printed what there is.
	exitPartial = 5
	// Processes of one pod that are dumped.
	maxProcesses = 50
)

// run returns what kubectl prints. It is killed when the context ends.
func (k *Kubectl) run(ctx context.Context, limit int, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, k.Program, append(append([]string{}, k.Cluster...), args...)...)
	// kubectl's own children may keep the pipes.
	command.WaitDelay = time.Second
	out, failed := &limitedBuffer{limit: limit}, &limitedBuffer{limit: maxErrorBytes, cut: true}
	command.Stdout, command.Stderr = out, failed
	err := command.Run()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case out.full:
		return nil, &collect.Refusal{Reason: stackdv1.Unreachable_TOO_LARGE, Explanation: fmt.Sprintf("it printed more than %d MiB", limit>>20)}
	case errors.Is(err, exec.ErrNotFound):
		return nil, ErrNoKubectl
	}
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == exitPartial && len(out.bytes) > 0 {
		return out.bytes, nil
	}
	if err != nil {
		said := strings.TrimSpace(string(failed.bytes))
		if said == "" {
			said = err.Error()
		}
		return nil, &collect.Refusal{Reason: reasonOf(said), Explanation: said}
	}
	return out.bytes, nil
}

// reasonOf reads what kubectl and stackctl say.
func reasonOf(said string) stackdv1.Unreachable_Reason {
	for words, reason := range map[string]stackdv1.Unreachable_Reason{
		"Forbidden":           stackdv1.Unreachable_PERMISSION_DENIED,
		"cannot connect to":   stackdv1.Unreachable_NO_CONNECTION,
		"container not found": stackdv1.Unreachable_NO_CONNECTION,
		"connection refused":  stackdv1.Unreachable_NO_CONNECTION,
		"executable file not": stackdv1.Unreachable_BAD_ANSWER,
	} {
		if strings.Contains(said, words) {
			return reason
		}
	}
	return stackdv1.Unreachable_FAILED
}

var errTooMuch = errors.New("more output than may be")

// limitedBuffer ends the command that writes more, or drops the rest.
type limitedBuffer struct {
	bytes []byte
	limit int
	cut   bool
	// More came than there was room for.
	full bool
}

func (b *limitedBuffer) Write(data []byte) (int, error) {
	room := b.limit - len(b.bytes)
	b.full = b.full || len(data) > room
	if b.full && !b.cut {
		return 0, errTooMuch
	}
	b.bytes = append(b.bytes, data[:min(len(data), room)]...)
	return len(data), nil
}

var _ io.Writer = (*limitedBuffer)(nil)

func (k *Kubectl) stackctl(ctx context.Context, target targets.Target, into proto.Message, args ...string) error {
	out, err := k.run(ctx, maxOutputBytes, append([]string{"exec", "--namespace=" + target.Labels[targets.NamespaceLabel],
		target.Labels[targets.PodLabel], "--container=" + k.Container, "--", "stackctl"}, args...)...)
	if err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(bytes.TrimSpace(out), into); err != nil {
		return &collect.Refusal{Reason: stackdv1.Unreachable_BAD_ANSWER, Explanation: fmt.Sprintf("what stackctl printed is no answer of it: %v", err)}
	}
	return nil
}

// Show returns a dump that a pod's daemon has stored, as text or JSON. What disturbs a terminal is not in it.
func (k *Kubectl) Show(ctx context.Context, namespace, pod, dump, output string) (string, error) {
	out, err := k.run(ctx, maxOutputBytes, "exec", "--namespace="+namespace, pod, "--container="+k.Container, "--",
		"stackctl", "show", dump, "--output="+output)
	if err != nil {
		return "", err
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, string(out)), nil
}

var quietWords = map[stackdv1.Quiet]string{stackdv1.Quiet_PREFER: "prefer", stackdv1.Quiet_ONLY: "only", stackdv1.Quiet_NEVER: "never"}

// Ask runs stackctl in the daemon's container: once for the list of processes, and once for each of them.
func (k *Kubectl) Ask(ctx context.Context, target targets.Target, request *stackdv1.CreateFleetDumpRequest) (collect.Answer, error) {
	var answer collect.Answer
	list := []string{"ps", "--output=json"}
	if process := request.GetProcess(); process != "" {
		list = append(list, "--filter="+process)
	}
	listed := &stackdv1.ListProcessesResponse{}
	if err := k.stackctl(ctx, target, listed, list...); err != nil {
		return answer, err
	}
	processes := listed.GetProcesses()
	if len(processes) > maxProcesses {
		answer.Notes = append(answer.Notes, fmt.Sprintf("%s has %d processes: %d of them were dumped", target.Name(), len(processes), maxProcesses))
		processes = processes[:maxProcesses]
	}
	one := merge.Pod{Name: target.Pod(), Target: target.Name()}
	var failed error
	for _, process := range processes {
		if !collect.IsProcessName(process.GetName()) {
			return collect.Answer{}, &collect.Refusal{Reason: stackdv1.Unreachable_BAD_ANSWER,
				Explanation: fmt.Sprintf("a process is named %.40q", process.GetName())}
		}
		args := []string{"dump", process.GetName(), "--output=json"}
		if word := quietWords[request.GetQuiet()]; word != "" {
			args = append(args, "--quiet="+word)
		}
		dump := &stackdv1.Dump{}
		if err := k.stackctl(ctx, target, dump, args...); err != nil {
			failed = err
			if ctx.Err() != nil {
				answer.Notes = append(answer.Notes, target.Name()+": the time was over before all of its processes were dumped")
				break
			}
			answer.Notes = append(answer.Notes, fmt.Sprintf("%s: %s was not dumped: %v", target.Name(), process.GetName(), err))
			continue
		}
		if !collect.IsDumpName(process.GetName(), dump.GetName()) {
			return collect.Answer{}, &collect.Refusal{Reason: stackdv1.Unreachable_BAD_ANSWER,
				Explanation: fmt.Sprintf("the dump of %s is named %.60q", process.GetName(), dump.GetName())}
		}
		one.Dumps = append(one.Dumps, dump)
	}
	if len(one.Dumps) == 0 {
		return collect.Answer{}, failed
	}
	answer.Pods = []merge.Pod{one}
	return answer, nil
}
