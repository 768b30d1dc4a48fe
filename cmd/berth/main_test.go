package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/internal/health"
	"berth/internal/secret"
	"berth/internal/setting"
)

// A command exits with 2 where only another setting, file or right helps, whichever part has found that.
func TestStatusOf_SettingIsWrong_IsTwo(t *testing.T) {
	t.Parallel()
	down := errors.New("EOF")
	reason := health.Reason{Code: "c", Setting: "BERTH_X", Text: "set it"}
	lasting := reason
	lasting.Lasting = true
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"setting":          {setting.Wrong(down), statusWrong},
		"secret":           {secret.New("BERTH_X", "", "").Refused(down), statusWrong},
		"lasting problem":  {health.NewProblem(lasting, "EOF", down), statusWrong},
		"problem":          {health.NewProblem(reason, "EOF", down), statusFailed},
		"any other":        {down, statusFailed},
		"cancelled":        {context.Canceled, statusFailed},
		"several, one bad": {errors.Join(down, health.NewProblem(lasting, "EOF", down)), statusWrong},
	} {
		require.Equal(t, c.want, statusOf(fmt.Errorf("serve: %w", c.err)), name)
	}
}
