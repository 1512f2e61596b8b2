/** The versions of a document, what changed from one to the next, and the way back to one of them. */
import { useState } from 'preact/hooks'
import { Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { bytes, exactTime } from '../../strings/format.ts'
import type { DocumentHistory, RewindOutcome, Version } from './database-answers.ts'
import { readHistory, rewindLines } from './database-calls.ts'
import { useMore } from './use-more.ts'
import { VersionDiff } from './version-diff.tsx'

const texts = en.databases.timeMachine

export function DocumentVersions({ database, id }: { readonly database: string; readonly id: string }) {
  const { data, failure, reload } = useLoad((signal) => readHistory(database, id, undefined, signal), id)
  const more = useMore(asPage(data), async (bookmark) => asPage(await readHistory(database, id, bookmark))!)
  const firstContent = more?.rows.findIndex(({ deleted }) => !deleted)
  return (
    <div class="stack">
      <div class="row">
        <LinkButton href={hashOf(['databases', database, 'time-machine'])} icon="back" isSmall>
          {texts.toTimeline}
        </LinkButton>
        {data !== undefined && !data.deleted && (
          <LinkButton href={hashOf(['databases', database, 'documents', id])} icon="file" isSmall>
            {texts.toDocument}
          </LinkButton>
        )}
      </div>
      {failure !== null && <ErrorNotice failure={failure} title={texts.historyNotLoaded} onRetry={reload} />}
      {data === undefined && failure === null && (
        <Card title={id}>
          <Skeleton lines={6} />
        </Card>
      )}
      {data?.deleted && (
        <Notice tone="info" title={texts.isDeleted}>
          <p>{texts.isDeletedHelp}</p>
        </Notice>
      )}
      {data !== undefined && more !== null && (
        <Card title={id} isFlush>
          <ol class="versions">
            {more.rows.map((version, at) => (
              <VersionRow
                key={version.rev}
                database={database}
                history={data}
                version={version}
                before={contentBefore(more.rows, at)}
                isOpen={at === firstContent}
                onRestored={reload}
              />
            ))}
          </ol>
        </Card>
      )}
      {more !== null && more.failure !== null && <ErrorNotice failure={more.failure} />}
      {more !== null && more.bookmark !== null && (
        <div class="row">
          <Button isBusy={more.isBusy} onClick={more.load}>
            {en.common.more}
          </Button>
        </div>
      )}
      {data?.known_since != null && <p class="fine">{texts.knownSince(exactTime(data.known_since))}</p>}
    </div>
  )
}

/** The same object for the same answer, since a new one begins the list anew. */
const pages = new WeakMap<DocumentHistory, { rows: readonly Version[]; bookmark: string | null }>()

function asPage(history: DocumentHistory | undefined) {
  if (history === undefined) return undefined
  const page = pages.get(history) ?? { rows: history.versions, bookmark: history.bookmark }
  pages.set(history, page)
  return page
}

/** The version with content that was stored before this one. */
function contentBefore(versions: readonly Version[], at: number): string | null {
  return versions.slice(at + 1).find(({ deleted }) => !deleted)?.rev ?? null
}

interface VersionRowProps {
  readonly database: string
  readonly history: DocumentHistory
  readonly version: Version
  readonly before: string | null
  readonly isOpen: boolean
  readonly onRestored: () => void
}

function VersionRow({ database, history, version, before, isOpen, onRestored }: VersionRowProps) {
  const { id, rev: winner, deleted: isDocumentDeleted } = history
  const { rev, deleted, stored_at, superseded_at, size, attachments } = version
  const [isShown, setShown] = useState(isOpen)
  const isCurrent = rev === winner
  const when = stored_at === null ? texts.unknownTime : exactTime(stored_at)
  const restore = () =>
    confirm({
      title: texts.restoreTitle,
      effects: [texts.restoreEffect(id, when), texts.restoreDevices],
      undo: isDocumentDeleted ? texts.restoreUndoDeleted : texts.restoreUndo,
      act: texts.restore,
      kind: 'primary',
      run: async () => {
        await restoreVersion(database, id, rev)
        say(texts.restored(id))
        onRestored()
      },
    })
  return (
    <li>
      <div class="version-head">
        <div class="grow">
          <h3>
            {stored_at === null ? when : <time dateTime={stored_at}>{when}</time>}{' '}
            {isCurrent && !deleted && <Badge tone="good">{texts.current}</Badge>}
            {deleted && <Badge tone="bad">{texts.deletion}</Badge>}
            {!isCurrent && superseded_at === null && !deleted && (
              <Badge tone="warn">{texts.inConflict}</Badge>
            )}
          </h3>
          <p class="fine">
            <code>{rev}</code>
            {!deleted && ` · ${bytes(size)}`}
            {attachments > 0 && ` · ${texts.withAttachments(attachments)}`}
          </p>
        </div>
        {!deleted && (
          <div class="actions">
            <Button isSmall isExpanded={isShown} onClick={() => setShown(!isShown)}>
              {isShown ? texts.hideChanges : before === null ? texts.showContent : texts.showChanges}
            </Button>
            {(!isCurrent || isDocumentDeleted) && (
              <Button isSmall icon="restore" onClick={restore}>
                {texts.restore}
              </Button>
            )}
          </div>
        )}
      </div>
      {isShown && <VersionDiff database={database} id={id} rev={rev} before={before} />}
    </li>
  )
}

const DONE: ReadonlySet<RewindOutcome> = new Set(['restored', 'recreated', 'unchanged'])

/** @throws Failure with the reason why the version was not restored */
async function restoreVersion(database: string, id: string, rev: string): Promise<void> {
  for await (const line of rewindLines(database, { ids: [id], rev })) {
    if (line.error !== undefined) throw new Failure(0, line.error, line.reason ?? line.error, null)
    if (line.outcome !== undefined && !DONE.has(line.outcome)) {
      throw new Failure(0, line.outcome, texts.outcomes[line.outcome], null)
    }
  }
}
