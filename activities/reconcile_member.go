package activities

import (
	"context"
	"strings"

	"berth"
	"berth/internal/ledger"
	"berth/lua"
)

// A member is named by its node, whose id has no slash, and its class.
func memberName(m lua.Member) string { return m.NodeID + "/" + m.Class }

func memberOf(subject string) lua.Member {
	id, class, _ := strings.Cut(subject, "/")
	return lua.Member{NodeID: id, Class: class}
}

// members considers the entries in the indexes of pools that belong to no registered node.
func (p *pass) members(ctx context.Context) error {
	return p.r.Scripts.MembersWithoutNode(ctx, func(m lua.Member) error {
		return p.candidate(ctx, berth.RuleMemberWithoutNode, memberName(m))
	})
}

func (r *Reconciler) memberWithoutNode(ctx context.Context, subject string) (version int64, differs bool, err error) {
	differs, err = r.Scripts.IsMemberWithoutNode(ctx, memberOf(subject))
	return 0, differs, err
}

func (r *Reconciler) dropMember(ctx context.Context, f berth.ReconcileFinding) error {
	code, err := r.Scripts.DropMember(ctx, memberOf(f.Subject))
	if err == nil && code == lua.NodeExists {
		return ledger.ErrStale
	}
	return err
}
