/** What changed between two versions of a document. The library is loaded when the first difference is shown. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { en } from '../../strings/en.ts'
import { bytes } from '../../strings/format.ts'
import { readVersion } from './database-calls.ts'
import { MAX_DOWNLOAD, readAttachment, saveFile, type VersionPlace } from './version-attachment.ts'
import {
  attachmentsOf,
  contentText,
  type DiffGap,
  type DiffLine,
  type VersionAttachment,
  withGaps,
} from './version-text.ts'

const texts = en.databases.timeMachine

interface VersionDiffProps {
  readonly database: string
  readonly id: string
  readonly rev: string
  /** The version before; null: all of it is new. */
  readonly before: string | null
}

interface Difference {
  /** null: the texts differ too much to be compared in a short time. */
  readonly lines: readonly (DiffLine | DiffGap)[] | null
  readonly text: string
  readonly attachments: readonly (VersionAttachment & { readonly change: 'same' | 'added' | 'removed' })[]
}

export function VersionDiff({ database, id, rev, before }: VersionDiffProps) {
  const { data, failure, reload } = useLoad(
    async (signal) => {
      const [now, then] = await Promise.all([
        readVersion(database, id, rev, signal),
        before === null ? null : readVersion(database, id, before, signal),
      ])
      return difference(then, now)
    },
    JSON.stringify([database, id, rev, before]),
  )
  if (data === undefined) {
    return failure === null ? (
      <Skeleton lines={4} />
    ) : (
      <ErrorNotice failure={failure} title={texts.versionNotLoaded} onRetry={reload} />
    )
  }
  const isSame = data.lines?.every(({ kind }) => kind === 'same' || kind === 'gap') === true
  return (
    <div class="stack">
      {isSame && before !== null ? (
        <p class="soft">{texts.sameContent}</p>
      ) : data.lines === null ? (
        <>
          <p class="soft">{texts.tooDifferent}</p>
          <pre class="diff">{data.text}</pre>
        </>
      ) : (
        <DiffLines rev={rev} lines={data.lines} />
      )}
      {data.attachments.length > 0 && (
        <AttachmentChanges version={{ database, id, rev }} attachments={data.attachments} />
      )}
    </div>
  )
}

/** Time for a comparison, in ms. */
const COMPARE_MS = 1500

async function difference(before: string | null, now: string): Promise<Difference> {
  const { diffLines } = await import('diff')
  const text = contentText(now)
  const changes = diffLines(before === null ? '' : contentText(before), text, { timeout: COMPARE_MS })
  const lines = changes?.flatMap(({ value, added, removed }): DiffLine[] =>
    value
      .replace(/\n$/, '')
      .split('\n')
      .map((line) => ({ kind: added ? 'added' : removed ? 'removed' : 'same', text: line })),
  )
  return {
    lines: lines === undefined ? null : withGaps(lines),
    text,
    attachments: changedAttachments(before === null ? [] : attachmentsOf(before), attachmentsOf(now)),
  }
}

function changedAttachments(
  before: readonly VersionAttachment[],
  now: readonly VersionAttachment[],
): Difference['attachments'] {
  const isIn = (list: readonly VersionAttachment[], { name, digest }: VersionAttachment) =>
    list.some((each) => each.name === name && each.digest === digest)
  return [
    ...before.filter((each) => !isIn(now, each)).map((each) => ({ ...each, change: 'removed' as const })),
    ...now.map((each) => ({ ...each, change: isIn(before, each) ? ('same' as const) : ('added' as const) })),
  ]
}

const SIGNS = { same: ' ', added: '+', removed: '−' } as const

function DiffLines({
  rev,
  lines,
}: {
  readonly rev: string
  readonly lines: readonly (DiffLine | DiffGap)[]
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
    <section class="diff" tabIndex={0} aria-label={texts.changesOf(rev)}>
      {lines.map((line, at) => {
        if (line.kind === 'gap') {
          return (
            // Lines keep their places.
            <p class="diff-gap" key={at}>
              {texts.gap(line.lines)}
            </p>
          )
        }
        const Tag = line.kind === 'added' ? 'ins' : line.kind === 'removed' ? 'del' : 'span'
        return (
          <Tag class={`diff-line is-${line.kind}`} key={at}>
            <span class="diff-sign">{SIGNS[line.kind]}</span>
            {line.text}
          </Tag>
        )
      })}
    </section>
  )
}

function AttachmentChanges({
  version,
  attachments,
}: Pick<Difference, 'attachments'> & { readonly version: VersionPlace }) {
  const [failure, setFailure] = useState<Failure | null>(null)
  const [loading, setLoading] = useState<string | null>(null)
  const all = attachments.reduce((sum, { length, change }) => sum + (change === 'removed' ? 0 : length), 0)
  const download = ({ name, type }: VersionAttachment) => {
    setLoading(name)
    setFailure(null)
    readAttachment(version, name)
      .then((content) => saveFile(name, new Blob([content], { type })))
      .catch((error: unknown) => setFailure(asFailure(error)))
      .finally(() => setLoading(null))
  }
  return (
    <>
      <ul class="lines" aria-label={texts.attachmentsOf(version.rev)}>
        {attachments.map(({ change, ...attachment }) => (
          <li key={`${change}${attachment.digest}${attachment.name}`}>
            <span>
              <span class={`name attachment is-${change}`}>{attachment.name}</span>{' '}
              <span class="soft">
                {attachment.type}, {bytes(attachment.length)}
                {change === 'same' ? '' : `, ${texts.attachmentChanges[change]}`}
              </span>
            </span>
            {change !== 'removed' && all <= MAX_DOWNLOAD && (
              <Button
                isSmall
                icon="download"
                isBusy={loading === attachment.name}
                onClick={() => download(attachment)}
              >
                {texts.download}
              </Button>
            )}
          </li>
        ))}
      </ul>
      {all > MAX_DOWNLOAD && <p class="fine">{texts.tooLarge(bytes(all))}</p>}
      {failure !== null && <ErrorNotice failure={failure} title={texts.notDownloaded} />}
    </>
  )
}
