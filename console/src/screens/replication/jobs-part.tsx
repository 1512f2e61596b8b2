/** The list of replications. */
import { useState } from 'preact/hooks'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { ago } from '../../strings/format.ts'
import { repeatReplication, stopReplication } from './job-acts.ts'
import { JobDetails } from './job-details.tsx'
import type { ReplicationRow } from './job-rows.ts'
import { helpFor, stateWords } from './job-words.ts'
import { NewJobDialog } from './new-job.tsx'
import { readReplications } from './read-replications.ts'

const { jobs: texts } = en.replication

/** In ms. */
const EVERY_MS = 4000

export function JobsPart() {
  const { data, failure, reload } = useLoad(readReplications, 'replications', { every: EVERY_MS })
  const [isNew, setNew] = useState(false)
  const [shownKey, setShownKey] = useState<string | null>(null)
  const [lateFailure, setLateFailure] = useState<string | null>(null)
  const shown = data?.rows.find(({ key }) => key === shownKey) ?? null
  const add = (
    <Button kind="primary" icon="plus" onClick={() => setNew(true)}>
      {texts.add}
    </Button>
  )
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {lateFailure !== null && (
        <Notice
          tone="bad"
          title={texts.ended}
          isAnnounced
          actions={
            <Button isSmall onClick={() => setLateFailure(null)}>
              {en.common.close}
            </Button>
          }
        >
          <p>{lateFailure}</p>
          <p>{helpFor(lateFailure)}</p>
        </Notice>
      )}
      <Card title={texts.title} lead={texts.lead} actions={add} isFlush>
        {data === undefined ? (
          failure === null && <Skeleton lines={5} />
        ) : data.rows.length === 0 ? (
          <Empty icon="replication" title={texts.none}>
            {texts.noneHelp}
          </Empty>
        ) : (
          <DataTable
            caption={texts.title}
            columns={columnsOf(setShownKey, reload)}
            rows={data.rows}
            keyOf={({ key }) => key}
          />
        )}
      </Card>
      {data !== undefined && data.total > data.rows.length && (
        <p class="fine">{texts.others(data.total - data.rows.length)}</p>
      )}
      {shown !== null && <JobDetails row={shown} onClose={() => setShownKey(null)} />}
      {isNew && (
        <NewJobDialog
          onClose={() => setNew(false)}
          onStarted={(isEnded) => {
            setNew(false)
            say(isEnded ? texts.done : texts.started)
            reload()
          }}
          onEnd={(error) => {
            if (error === null) say(texts.done)
            else setLateFailure(error)
            reload()
          }}
        />
      )}
    </>
  )
}

function columnsOf(show: (key: string) => void, reload: () => void): Column<ReplicationRow>[] {
  return [
    {
      key: 'way',
      title: texts.way,
      isMain: true,
      cell: (row) => <WayCell row={row} onShow={() => show(row.key)} />,
    },
    { key: 'state', title: texts.state, cell: (row) => <JobState row={row} /> },
    { key: 'copied', title: texts.copied, isNumber: true, cell: copiedText },
    {
      key: 'acts',
      title: texts.acts,
      isUntitled: true,
      cell: (row) => <JobButtons row={row} reload={reload} />,
    },
  ]
}

function WayCell({ row, onShow }: { readonly row: ReplicationRow; readonly onShow: () => void }) {
  const { source, target, document, isContinuous } = row
  const kind = document === null ? texts.untilStop : texts.kept(document.database, document.id)
  return (
    <div class="way">
      <button type="button" class="way-name" onClick={onShow} aria-haspopup="dialog">
        <span class="for-readers">{texts.from} </span>
        <span>{source}</span>
        <span>
          <span aria-hidden="true">→ </span>
          <span class="for-readers"> {texts.to} </span>
          {target}
        </span>
      </button>
      <span class="fine">
        {kind}
        {isContinuous === true && ` · ${texts.continuous}`}
      </span>
    </div>
  )
}

function JobState({ row }: { readonly row: ReplicationRow }) {
  const { tone, text } = stateWords(row)
  const error = row.info?.error
  return (
    <div class="job-state">
      <span>
        <Badge tone={tone}>{text}</Badge>
        {row.since !== null && <span class="fine"> {ago(row.since)}</span>}
      </span>
      {error !== undefined && (
        <>
          <span class="reason">{error}</span>
          <span class="fine">{helpFor(error)}</span>
        </>
      )}
    </div>
  )
}

function copiedText({ info }: ReplicationRow) {
  const { docs_written: written, changes_pending: pending, doc_write_failures: refused = 0 } = info ?? {}
  if (written === undefined) return <span class="soft">–</span>
  return (
    <div class="job-numbers">
      <span>{texts.written(written)}</span>
      {typeof pending === 'number' && pending > 0 && <span class="fine">{texts.pending(pending)}</span>}
      {refused > 0 && <span class="is-refused">{texts.refused(refused)}</span>}
    </div>
  )
}

function JobButtons({ row, reload }: { readonly row: ReplicationRow; readonly reload: () => void }) {
  const { document, state } = row
  const isOver = state === 'completed' || state === 'failed'
  return (
    <div class="actions is-end">
      {document !== null && isOver && (
        <Button isSmall icon="reload" onClick={() => askToRepeat(row, document, reload)}>
          {texts.again}
        </Button>
      )}
      <Button
        isSmall
        kind="quiet"
        icon={isOver ? 'trash' : 'close'}
        label={isOver ? texts.remove : texts.stop}
        onClick={() => askToStop(row, isOver, reload)}
      />
    </div>
  )
}

function askToRepeat(
  row: ReplicationRow,
  document: NonNullable<ReplicationRow['document']>,
  reload: () => void,
): void {
  confirm({
    title: texts.againTitle,
    effects: [texts.againEffect(row.source, row.target)],
    undo: texts.againUndo,
    act: texts.again,
    kind: 'primary',
    run: async () => {
      await repeatReplication(document)
      say(texts.started)
      reload()
    },
  })
}

function askToStop(row: ReplicationRow, isOver: boolean, reload: () => void): void {
  const { document } = row
  confirm({
    title: isOver ? texts.removeTitle : texts.stopTitle,
    effects: [
      isOver ? texts.removeEffect : texts.stopEffect(row.source, row.target),
      ...(document === null ? [] : [texts.documentEffect(document.id)]),
    ],
    undo: texts.stopUndo,
    act: isOver ? texts.remove : texts.stop,
    run: async () => {
      await stopReplication(row)
      say(isOver ? texts.removed : texts.stopped)
      reload()
    },
  })
}
