package activities

import (
	"strings"

	"berth"
)

// message is a short text for the user, in the task's locale.
type message struct{ en, zh string }

var (
	msgWaiting  = message{"waiting for the model", "正在等待模型"}
	msgReset    = message{"the last attempt failed, restarting this step", "上一次尝试中断，正在重新开始这一步"}
	msgThought  = message{"the text so far was a thought of the model; the answer follows", "以上内容是模型的思考，正式回答如下"}
	msgThinking = message{"the model is thinking", "模型正在思考"}
	msgRepair   = message{"the answer does not match the format, retrying", "回答格式不符，正在再次请求"}
	msgContinue = message{"the answer reached its length limit, requesting the rest", "回答达到长度上限，正在请求其余部分"}
	msgRetry    = message{"the model call failed, retrying", "模型调用未成功，正在重试"}
	msgAnswer   = message{"writing", "正在撰写"}
)

func text(l berth.Locale, m message) string {
	if strings.HasPrefix(string(l), string(berth.LocaleZH)) {
		return m.zh
	}
	return m.en
}

// stageText returns what the task does in a stage: the label of the template's stage or, in a step without stages, of the step.
func (s *step) stageText(stage berth.Stage) string {
	for _, declared := range s.template.Stages {
		if declared.ID == stage {
			return declared.Label.In(s.in.Locale)
		}
	}
	if label := s.spec.Label.In(s.in.Locale); label != "" && stage == s.firstStage() {
		return label
	}
	return text(s.in.Locale, msgAnswer)
}
