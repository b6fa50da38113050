package gateway

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"stackd.example/fleet/targets"
)

const (
	// For how long an answer of the reviewer is used again: a right that is taken away lasts no longer.
	reviewTime = 30 * time.Second
	// Answers that are remembered.
	maxReviews = 10_000
	// For how long the reviewer is waited for.
	maxReviewTime = 5 * time.Second
	// Namespaces that are asked for in one call; more are not seen.
	maxViewNamespaces = 1000
)

// Subject is whom a token belongs to.
type Subject struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Reviewer knows tokens and rights, as the API server of a cluster does.
type Reviewer interface {
	// Review returns whom a token belongs to; nil: it is not valid.
	Review(ctx context.Context, token string) (*Subject, error)
	// May is whether the subject may see the pods of a namespace; those of all where it is empty.
	May(ctx context.Context, subject *Subject, namespace string) (bool, error)
}

// tokens asks the reviewer, and remembers what it says for a short time.
type tokens struct {
	reviewer Reviewer
	subjects remembered[*Subject]
	rights   remembered[bool]
}

func (t *tokens) subject(ctx context.Context, token string) (*Subject, error) {
	// The token itself is not kept.
	return t.subjects.get(sha256.Sum256([]byte(token)), func() (*Subject, error) {
		ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
		defer cancel()
		return t.reviewer.Review(ctx, token)
	})
}

func (t *tokens) may(ctx context.Context, subject *Subject, namespace string) (bool, error) {
	groups := slices.Sorted(slices.Values(subject.Groups))
	key := fmt.Sprintf("%q %q %q %q %q", subject.Name, subject.UID, groups, subject.Extra, namespace)
	return t.rights.get(sha256.Sum256([]byte(key)), func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
		defer cancel()
		return t.reviewer.May(ctx, subject, namespace)
	})
}

// admit returns who shows a token, and what that caller sees. What is wrong with it is an error of the API.
func (t *tokens) admit(ctx context.Context, token string) (Caller, *view, error) {
	unknown := Caller{"unauthenticated", None}
	subject, err := t.subject(ctx, token)
	if err != nil {
		return unknown, nil, reviewFailure(err)
	}
	if subject == nil {
		return unknown, nil, failure(connect.CodeUnauthenticated, "BAD_TOKEN", "the token is not valid here, or not any more", nil)
	}
	caller := Caller{"token:" + subject.Name, Dump}
	all, err := t.may(ctx, subject, "")
	if err != nil {
		return caller, nil, reviewFailure(err)
	}
	if all {
		return caller, nil, nil
	}
	return caller, &view{tokens: t, ctx: ctx, subject: subject, known: map[string]bool{}}, nil
}

func reviewFailure(err error) error {
	return failure(connect.CodeUnavailable, "ACCESS_UNAVAILABLE", "the API server does not say who may see what: "+err.Error(), nil)
}

// bearer is the token of a call, if it has one.
func bearer(header http.Header) string {
	kind, token, _ := strings.Cut(header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// view is what one call sees: targets and records of some namespaces. nil sees all.
type view struct {
	tokens  *tokens
	ctx     context.Context
	subject *Subject

	mutex sync.Mutex
	known map[string]bool
	fault error
}

// sees is false where the API server does not answer; `err` tells of it then.
func (v *view) sees(namespace string) bool {
	if v == nil {
		return true
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	may, known := v.known[namespace]
	if known || v.fault != nil || len(v.known) >= maxViewNamespaces {
		return may
	}
	// Without a namespace it is asked for all: what is in none is seen by those who see all.
	may, v.fault = v.tokens.may(v.ctx, v.subject, namespace)
	v.known[namespace] = may
	return may
}

// within leaves of a selector what the call sees.
func (v *view) within(selector targets.Selector) targets.Selector {
	if v == nil {
		return selector
	}
	return selector.Within(v.sees)
}

// err is why something may be missing that the caller may see.
func (v *view) err() error {
	if v == nil {
		return nil
	}
	v.mutex.Lock()
	defer v.mutex.Unlock()
	if v.fault == nil {
		return nil
	}
	return reviewFailure(v.fault)
}

// remembered keeps answers for a short time. A question that fails is asked anew.
type remembered[V any] struct {
	mutex sync.Mutex
	known map[[sha256.Size]byte]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

func (r *remembered[V]) get(key [sha256.Size]byte, ask func() (V, error)) (V, error) {
	now := time.Now()
	r.mutex.Lock()
	one, found := r.known[key]
	r.mutex.Unlock()
	if found && now.Before(one.until) {
		return one.value, nil
	}
	value, err := ask()
	if err != nil {
		return value, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.known == nil || len(r.known) >= maxReviews {
		r.known = map[[sha256.Size]byte]answer[V]{}
	}
	r.known[key] = answer[V]{value, now.Add(reviewTime)}
	return value, nil
}
