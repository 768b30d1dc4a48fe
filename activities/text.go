package activities

import (
	"cmp"

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

var stageMessages = map[berth.Stage]message{
	berth.StageOCR:     {"reading the image", "正在识别图片文字"},
	berth.StageSummary: {"extracting the key points", "正在提取要点"},
	berth.StageIngest:  {"reading the posting and the résumé", "正在阅读岗位与简历"},
	berth.StageCompare: {"comparing requirement by requirement", "正在逐条比对要求"},
	berth.StageScore:   {"scoring", "正在评分"},
	berth.StageDeliver: {"writing the advice", "正在撰写建议"},
}

func text(l berth.Locale, m message) string {
	if l == berth.LocaleZH {
		return m.zh
	}
	return m.en
}

func msgStage(s berth.Stage) message {
	return cmp.Or(stageMessages[s], msgAnswer)
}
