// Package collect asks the daemons of a fleet at once, and merges what they answer until the time is over.
//
// What answers at an address of a target may be anything. Its bytes are counted and bounded, its names are checked, and it has
// the time of one question.
package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"connectrpc.com/connect"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/api/stackdv1/stackdv1connect"
	"stackd.example/fleet/merge"
	"stackd.example/fleet/targets"
)

const (
	// The limit of a daemon's answers, and what frames them.
	maxAnswerBytes = 4<<20 + 64<<10
	// Processes of one target that are dumped.
	maxProcesses = 50
)

// Daemons asks daemons over one HTTP client.
type Daemons struct {
	client *http.Client
	scheme string
}

var (
	processName = regexp.MustCompile(`^processes/[0-9]{1,10}-[0-9]{1,20}(-[0-9]{1,10})?$`)
	dumpID      = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)
)

// IsProcessName is whether a daemon may have given this name to a process.
func IsProcessName(name string) bool { return processName.MatchString(name) }

// IsDumpName is whether a daemon may have given this name to a dump of the process; of any, where that is empty.
func IsDumpName(process, name string) bool {
	of, id, found := strings.Cut(name, "/dumps/")
	return found && dumpID.MatchString(id) && (of == process || process == "" && IsProcessName(of))
}

var errBadAnswer = errors.New("what answers does not keep to the API")

// Ask dumps each process of a target that fits the request. Most pods have one process: it needs one call.
func (d *Daemons) Ask(ctx context.Context, target targets.Target, request *stackdv1.CreateFleetDumpRequest) (Answer, error) {
	client := stackdv1connect.NewStackdClient(d.client, d.scheme+"://"+target.Address, connect.WithGRPC(),
		connect.WithReadMaxBytes(maxAnswerBytes), connect.WithAcceptCompression("gzip", nil, nil))
	if request.GetProcess() == "" {
		dump, err := d.dump(ctx, client, "", request)
		switch reason := ReasonIn(err); {
		case reason == "NO_PROCESS":
			return Answer{}, nil
		case reason == "PROCESS_AMBIGUOUS":
			// There are several: each is asked for.
		case err != nil:
			return Answer{}, d.explained(err)
		default:
			return Answer{Pods: []merge.Pod{{Name: podOf(target, dump), Target: target.Name(), Dumps: []*stackdv1.Dump{dump}}}}, nil
		}
	}
	listed, err := client.ListProcesses(ctx, connect.NewRequest(&stackdv1.ListProcessesRequest{
		PageSize: maxProcesses, Filter: request.GetProcess()}))
	if err != nil {
		return Answer{}, d.explained(err)
	}
	var all Answer
	if listed.Msg.GetNextPageToken() != "" || len(listed.Msg.GetProcesses()) > maxProcesses {
		all.Notes = append(all.Notes, fmt.Sprintf("%s has more than %d processes: the rest is left out", target.Name(), maxProcesses))
	}
	var failed error
	byPod := map[string]int{}
	for _, process := range listed.Msg.GetProcesses()[:min(len(listed.Msg.GetProcesses()), maxProcesses)] {
		if !processName.MatchString(process.GetName()) {
			return Answer{}, fmt.Errorf("%w: a process is named %.40q", errBadAnswer, process.GetName())
		}
		dump, err := d.dump(ctx, client, process.GetName(), request)
		if errors.Is(err, errBadAnswer) {
			return Answer{}, err
		}
		if err != nil {
			failed = err
			if ctx.Err() != nil {
				break
			}
			all.Notes = append(all.Notes, fmt.Sprintf("%s: %s was not dumped: %s", target.Name(), process.GetName(), reasonOf(ctx, err).explanation))
			continue
		}
		pod := podOf(target, dump)
		if _, known := byPod[pod]; !known {
			byPod[pod] = len(all.Pods)
			all.Pods = append(all.Pods, merge.Pod{Name: pod, Target: target.Name()})
		}
		at := &all.Pods[byPod[pod]]
		at.Dumps = append(at.Dumps, dump)
	}
	if len(all.Pods) == 0 {
		return Answer{}, failed
	}
	if failed != nil && ctx.Err() != nil {
		all.Notes = append(all.Notes, target.Name()+": the time was over before all of its processes were dumped")
	}
	return all, nil
}

// explained names the cause that net/http hides where a connection ends before its first use. With TLS that is a certificate
// which the daemon does not accept.
func (d *Daemons) explained(err error) error {
	if d.scheme == "https" && strings.Contains(err.Error(), "client conn could not be established") {
		return errNotAccepted
	}
	return err
}

func (d *Daemons) dump(ctx context.Context, client stackdv1connect.StackdClient, process string,
	request *stackdv1.CreateFleetDumpRequest) (*stackdv1.Dump, error) {
	made, err := client.CreateDump(ctx, connect.NewRequest(&stackdv1.CreateDumpRequest{
		Process: process, View: stackdv1.DumpView_DUMP_VIEW_GROUPS, Frames: request.GetFrames(), Quiet: request.GetQuiet()}))
	if err != nil {
		return nil, err
	}
	if !IsDumpName(process, made.Msg.GetName()) {
		return nil, fmt.Errorf("%w: the dump of %s is named %.60q", errBadAnswer, process, made.Msg.GetName())
	}
	if len(made.Msg.GetGroups()) > 0 || made.Msg.GetThreadCounts().GetCaptured() == 0 {
		return made.Msg, nil
	}
	// A daemon of an older release does not know the view.
	whole, err := client.GetDump(ctx, connect.NewRequest(&stackdv1.GetDumpRequest{
		Name: made.Msg.GetName(), View: stackdv1.DumpView_DUMP_VIEW_FULL, Frames: request.GetFrames()}))
	if err != nil {
		return nil, err
	}
	if whole.Msg.GetName() != made.Msg.GetName() {
		return nil, fmt.Errorf("%w: asked for %s, it gives %.60q", errBadAnswer, made.Msg.GetName(), whole.Msg.GetName())
	}
	return whole.Msg, nil
}

// podOf believes discovery first. A daemon of a whole node says of each process which pod it is in.
func podOf(target targets.Target, dump *stackdv1.Dump) string {
	if pod := target.Labels[targets.PodLabel]; pod != "" {
		return pod
	}
	pod := dump.GetProcess().GetResourceAttributes()["k8s.pod.name"]
	if podName.MatchString(pod) {
		return pod
	}
	return target.Address
}

// As Kubernetes has names of pods.
var podName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// bounded is a transport whose answers end with an error at a number of bytes. The size of a message may be a lie, and a stream
// may have no end.
type bounded struct {
	inner http.RoundTripper
}

var errTooLarge = errors.New("the answer is larger than one may be")

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.inner.RoundTrip(request)
	if err == nil {
		response.Body = &boundedBody{inner: response.Body, left: maxAnswerBytes}
	}
	return response, err
}

type boundedBody struct {
	inner io.ReadCloser
	left  int
}

func (b *boundedBody) Read(into []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.inner.Read(into[:min(len(into), b.left)])
	b.left -= n
	return n, err
}

func (b *boundedBody) Close() error { return b.inner.Close() }
