package activities

import "berth"

// message is a short text for the user, in the task's locale.
type message struct{ en, zh string }

var (
	msgWaiting  = message{"waiting for the model", "正在等待模型"}
	msgReset    = message{"the last attempt failed, restarting this step", "上一次尝试中断，正在重新开始这一步"}
	msgThinking = message{"the model is thinking", "模型正在思考"}
	msgRepair   = message{"the answer does not match the format, retrying", "回答格式不符，正在再次请求"}
	msgRetry    = message{"the model call failed, retrying", "模型调用未成功，正在重试"}
	msgOCR      = message{"reading the image", "正在识别图片文字"}
	msgSummary  = message{"extracting the key points", "正在提取要点"}
	msgIngest   = message{"reading the posting and the résumé", "正在阅读岗位与简历"}
	msgCompare  = message{"comparing requirement by requirement", "正在逐条比对要求"}
	msgScore    = message{"scoring", "正在评分"}
	msgDeliver  = message{"writing the advice", "正在撰写建议"}
	msgAnswer   = message{"writing", "正在撰写"}
)

func text(l berth.Locale, m message) string {
	if l == berth.LocaleZH {
		return m.zh
	}
	return m.en
}

func msgStage(s berth.Stage) message {
	switch s {
	case berth.StageOCR:
		return msgOCR
	case berth.StageSummary:
		return msgSummary
	case berth.StageIngest:
		return msgIngest
	case berth.StageCompare:
		return msgCompare
	case berth.StageScore:
		return msgScore
	case berth.StageDeliver:
		return msgDeliver
	default:
		return msgAnswer
	}
}
