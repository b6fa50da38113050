package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"stackd.example/fleet/api/stackdv1"
	"stackd.example/fleet/history"
)

const (
	defaultWindow = 7 * 24 * time.Hour
	maxWindow     = 30 * 24 * time.Hour
	// For how long the store of history is waited for.
	maxHistoryTime = 30 * time.Second
	// Questions to it at once.
	maxHistoryCalls     = 4
	defaultHistoryPage  = 50
	maxHistoryPage      = 1000
	maxHistoryPageBytes = 4<<20 - 64<<10
)

// past answers calls over history.
type past struct {
	// nil: there is none.
	store    history.Store
	calls    chan struct{}
	measures *measures
}

var historyCodes = map[history.Reason]connect.Code{
	history.Unavailable: connect.CodeUnavailable, history.TimedOut: connect.CodeDeadlineExceeded,
	history.Refused: connect.CodeFailedPrecondition, history.BadAnswer: connect.CodeInternal, history.NotFound: connect.CodeNotFound,
	history.Ambiguous: connect.CodeFailedPrecondition, history.Damaged: connect.CodeDataLoss, history.BadName: connect.CodeInvalidArgument,
}

func historyFailure(err error) error {
	var fault *history.Fault
	if !errors.As(err, &fault) {
		return err
	}
	var metadata map[string]string
	if len(fault.Pods) > 0 {
		metadata = map[string]string{"pods": strings.Join(fault.Pods, ",")}
	}
	return failure(historyCodes[fault.Reason], string(fault.Reason), fault.Sentence, metadata)
}

// begin gives a call its time and its place; `end` is called when it is over.
func (p past) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	if p.store == nil {
		return nil, nil, failure(connect.CodeFailedPrecondition, "NO_HISTORY",
			"this gateway has no history: it is started with --history-loki for that", nil)
	}
	select {
	case p.calls <- struct{}{}:
	default:
		return nil, nil, failure(connect.CodeResourceExhausted, "TOO_MANY_CALLS",
			fmt.Sprintf("%d calls over history run already: wait for one of them", maxHistoryCalls), nil)
	}
	limit := time.Now().Add(maxHistoryTime)
	if deadline, has := ctx.Deadline(); has {
		limit = earlier(limit, deadline.Add(-min(sendTime, time.Until(deadline)/2)))
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	return ctx, func() {
		cancel()
		<-p.calls
	}, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// listRequest is one for crashes or for hangs.
type listRequest interface {
	GetSelector() string
	GetWindow() *durationpb.Duration
	GetEndTime() *timestamppb.Timestamp
	GetFingerprint() string
	GetPageSize() int32
	GetPageToken() string
}

// historyPage is a part of a listing.
type historyPage struct {
	*history.Listing
	next string
	// How many all pages have.
	groups int
}

func (p past) list(ctx context.Context, kind history.Kind, request listRequest) (*historyPage, error) {
	selector, err := selectorOf(ctx, request.GetSelector())
	if err != nil {
		return nil, err
	}
	if !history.IsFingerprint(request.GetFingerprint()) {
		return nil, failure(connect.CodeInvalidArgument, "BAD_NAME", "a fingerprint has 32 hex digits", nil)
	}
	if request.GetPageSize() < 0 {
		return nil, failure(connect.CodeInvalidArgument, "BAD_PAGE_SIZE", "page_size is negative", nil)
	}
	window, after, err := windowOf(request)
	if err != nil {
		return nil, err
	}
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	listing, err := history.List(ctx, p.store, history.Question{Window: window, Kind: kind, Fingerprint: request.GetFingerprint()}, selector)
	p.measures.countHistory(err)
	if err != nil {
		return nil, historyFailure(err)
	}
	if err := viewOf(ctx).err(); err != nil {
		return nil, err
	}
	size := int(request.GetPageSize())
	if size == 0 {
		size = defaultHistoryPage
	}
	return cut(listing, window.End, after, min(size, maxHistoryPage)), nil
}

// windowOf reads the window of a request, or that of its first page, and behind which group the page begins.
func windowOf(request listRequest) (history.Window, *stackdv1.HistoryGroup, error) {
	span := defaultWindow
	if asked := request.GetWindow(); asked != nil {
		if !asked.IsValid() || asked.AsDuration() < 0 {
			return history.Window{}, nil, failure(connect.CodeInvalidArgument, "BAD_WINDOW", "window is not a time span", nil)
		}
		if asked.AsDuration() > 0 {
			span = min(asked.AsDuration(), maxWindow)
		}
	}
	end := time.Now()
	if asked := request.GetEndTime(); asked != nil {
		// Times of stores are nanoseconds in 64 bits.
		if end = asked.AsTime(); !asked.IsValid() || end.Before(time.Unix(0, 0).Add(span)) || end.Year() > 2200 {
			return history.Window{}, nil, failure(connect.CodeInvalidArgument, "BAD_WINDOW", "end_time is not between 1970 and 2200", nil)
		}
	}
	var after *stackdv1.HistoryGroup
	if token := request.GetPageToken(); token != "" {
		var err error
		if end, after, err = readToken(token); err != nil {
			return history.Window{}, nil, failure(connect.CodeInvalidArgument, "BAD_PAGE_TOKEN", "page_token is none that was given out", nil)
		}
	}
	return history.Window{Begin: end.Add(-span), End: end}, after, nil
}

// A token has the end of the window, and the last group of the page before.
func tokenOf(end time.Time, last *stackdv1.HistoryGroup) string {
	return fmt.Sprintf("%d %d %s", end.UnixNano(), last.GetLastSeenTime().AsTime().UnixNano(), last.GetFingerprint())
}

func readToken(token string) (time.Time, *stackdv1.HistoryGroup, error) {
	parts := strings.Split(token, " ")
	if len(parts) != 3 || !history.IsFingerprint(parts[2]) {
		return time.Time{}, nil, errors.New("it has not three parts")
	}
	end, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || end < int64(maxWindow) {
		return time.Time{}, nil, errors.New("it has no end")
	}
	last, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return time.Time{}, nil, err
	}
	return time.Unix(0, end), &stackdv1.HistoryGroup{Fingerprint: parts[2], LastSeenTime: timestamppb.New(time.Unix(0, last))}, nil
}

// cut leaves the groups of one page, as many as an answer holds.
func cut(listing *history.Listing, end time.Time, after *stackdv1.HistoryGroup, size int) *historyPage {
	one := &historyPage{Listing: listing, groups: len(listing.Groups)}
	rest := listing.Groups
	for after != nil && len(rest) > 0 && history.Newest(rest[0], after) <= 0 {
		rest = rest[1:]
	}
	bytes, count := 0, 0
	for count < min(size, len(rest)) {
		bytes += proto.Size(rest[count]) + 8
		if count > 0 && bytes > maxHistoryPageBytes {
			break
		}
		count++
	}
	one.Groups = rest[:count]
	if count < len(rest) {
		one.next = tokenOf(end, rest[count-1])
	}
	return one
}

// ListCrashes answers out of the store of history.
func (s *Service) ListCrashes(ctx context.Context, request *connect.Request[stackdv1.ListCrashesRequest]) (
	*connect.Response[stackdv1.ListCrashesResponse], error) {
	one, err := s.past.list(ctx, history.Crashes, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&stackdv1.ListCrashesResponse{Groups: one.Groups, NextPageToken: one.next, TotalSize: int32(one.groups),
		TotalCount: one.Count, Notes: one.Notes}), nil
}

// ListHangs answers likewise.
func (s *Service) ListHangs(ctx context.Context, request *connect.Request[stackdv1.ListHangsRequest]) (
	*connect.Response[stackdv1.ListHangsResponse], error) {
	one, err := s.past.list(ctx, history.Hangs, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&stackdv1.ListHangsResponse{Groups: one.Groups, NextPageToken: one.next, TotalSize: int32(one.groups),
		TotalCount: one.Count, Notes: one.Notes}), nil
}
