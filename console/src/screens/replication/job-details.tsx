/** One replication: its numbers, and what has happened. */
import { Dialog } from '../../parts/dialog.tsx'
import { Badge, Notice } from '../../parts/notice.tsx'
import { type Fact, Facts } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { exactTime, number } from '../../strings/format.ts'
import type { ReplicationRow } from './job-rows.ts'
import { helpFor, stateWords } from './job-words.ts'

const { details: texts, jobs } = en.replication

interface JobDetailsProps {
  readonly row: ReplicationRow
  onClose(): void
}

export function JobDetails({ row, onClose }: JobDetailsProps) {
  const { source, target, document, jobId, user, info, history } = row
  const { tone, text } = stateWords(row)
  const count = (value: number | null | undefined) =>
    typeof value === 'number' ? number(value) : texts.unknown
  const facts: Fact[] = [
    { term: texts.state, value: <Badge tone={tone}>{text}</Badge> },
    { term: texts.written, value: count(info?.docs_written) },
    { term: texts.pending, value: count(info?.changes_pending) },
    { term: texts.refused, value: count(info?.doc_write_failures) },
    { term: texts.user, value: user ?? texts.unknown },
    {
      term: texts.kept,
      value: document === null ? jobs.untilStop : `${document.database} / ${document.id}`,
    },
  ]
  return (
    <Dialog title={texts.title} isWide onClose={onClose}>
      <dl class="facts ends">
        <div>
          <dt>{texts.source}</dt>
          <dd>{source}</dd>
        </div>
        <div>
          <dt>{texts.target}</dt>
          <dd>{target}</dd>
        </div>
      </dl>
      {info?.error !== undefined && (
        <Notice tone={tone === 'bad' ? 'bad' : 'warn'}>
          <p class="reason">{info.error}</p>
          <p>{helpFor(info.error)}</p>
        </Notice>
      )}
      <Facts facts={facts} />
      {jobId !== null && (
        <p class="fine">
          {texts.id} <code>{jobId}</code>
        </p>
      )}
      <h3>{texts.history}</h3>
      {history.length === 0 ? (
        <p class="soft">{texts.noHistory}</p>
      ) : (
        <ol class="history">
          {history.map(({ timestamp, type, reason }, at) => (
            <li key={at}>
              <span class="fine">{exactTime(timestamp)}</span>
              <span>
                {eventText(type)}
                {reason !== undefined && (
                  <>
                    : <span class="reason">{reason}</span>
                  </>
                )}
              </span>
            </li>
          ))}
        </ol>
      )}
    </Dialog>
  )
}

function eventText(type: string): string {
  const events: Readonly<Record<string, string>> = texts.events
  return events[type] ?? type
}
