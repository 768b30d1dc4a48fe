// Two short examples written for this page. All names and companies are fictitious.
import type { Lang } from './i18n.svelte';

interface Example {
  resume: string;
  posting: string;
  notes: string;
}

export const examples: Record<Lang, Example> = {
  en: {
    resume: `Mara Lindqvist
Backend engineer, nine years

Summary
I build the parts other services queue for: locks, limits, ledgers. I measure before and after.

Experience
Staff engineer, Tidewater (2020 to now)
- Replaced ZooKeeper locks with a lease service in Go and Redis; p99 fell from 38 ms to 4 ms.
- Moved rate limiting for 40,000 requests a second into one Lua script.
- Owned the ledger: 2 TB of PostgreSQL, logical replication, migrations without downtime.
Engineer, Kaimuur (2016 to 2020)
- Ran 14 Kubernetes clusters on bare metal with one colleague; on call one week in four.

Skills
Go, Lua, SQL, Redis, PostgreSQL, Kubernetes, Docker, Linux, Prometheus

Education
MSc Computer Science, TU Delft

Languages
Swedish, English`,
    posting: `Senior Backend Engineer, Scheduling
Harbour Systems, Rotterdam, full time

About the role
We decide which of a hundred thousand calls runs next on capacity that is always too small. You will own the scheduler.

Responsibilities
- Design leases and queues that stay right when machines do not.
- Keep the scheduler fast, and prove it with measurements.
- Share the on-call rotation.

Requirements
- Five years of Go in production
- Redis, including Lua scripting
- PostgreSQL
- Kubernetes in production
- Temporal or another workflow engine

Nice to have
- Spoken Mandarin
- Experience with Rust`,
    notes: '',
  },
  zh: {
    resume: `林默
后端工程师，九年经验

个人简介
专注于其他服务所依赖的基础部分：锁、限流、账本。改动前后都有测量。

工作经历
潮汐科技 资深工程师（2020 年至今）
- 用 Go 与 Redis 编写租约服务，取代 ZooKeeper 锁，p99 从 38 毫秒降到 4 毫秒。
- 将每秒四万请求的限流移入单个 Lua 脚本。
- 负责账本系统：2 TB PostgreSQL，逻辑复制，不停机迁移。
海湾网络 工程师（2016 至 2020 年）
- 与一位同事共同维护 14 个裸机 Kubernetes 集群，每四周值班一周。

专业技能
Go、Lua、SQL、Redis、PostgreSQL、Kubernetes、Docker、Linux、Prometheus

教育背景
浙江大学 计算机科学 硕士`,
    posting: `高级后端工程师（调度方向）
港湾系统 · 上海 · 全职

职位简介
在始终紧缺的容量上，决定十万个请求中谁先执行。您将负责整个调度器。

岗位职责
- 设计在机器出错时依然正确的租约与队列。
- 保持调度器高效，并用测量证明。
- 参与值班。

任职要求
- 五年以上 Go 生产经验
- 熟悉 Redis，包括 Lua 脚本
- 熟悉 PostgreSQL
- Kubernetes 生产经验
- 了解 Temporal 或其他工作流引擎

加分项
- 英语口语流利
- 有 Rust 经验`,
    notes: '',
  },
};
