/** One document: its text, attachments and revisions. */
import { useEffect, useState } from 'preact/hooks'
import { asFailure, Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { findFault, findObjectFault, formatJson, SHORT } from '../../parts/json-editor/exact-json.ts'
import { faultText, JsonEditor } from '../../parts/json-editor/json-editor.tsx'
import { Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { Attachments } from './attachments.tsx'
import { askToDelete } from './delete-documents.ts'
import { DocumentHead } from './document-head.tsx'
import { type OpenDocument, reservedMember } from './document-text.ts'
import { draftOf, dropDraft, keepDraft } from './drafts.ts'
import { LeaveGuard } from './leave-guard.tsx'
import { Revisions } from './revisions.tsx'
import { SaveConflict } from './save-conflict.tsx'
import { readDocument, saveDocument } from './stored-document.ts'

const { documents: texts } = en

interface DocumentPageProps {
  readonly database: string
  readonly id: string
  /** Another revision than the winner, which is shown and cannot be changed. */
  readonly rev: string | undefined
}

export function DocumentPage({ database, id, rev }: DocumentPageProps) {
  const key = JSON.stringify([database, id, rev])
  const { data, failure, isLoading, reload } = useLoad(
    (signal) => readDocument(database, id, rev, signal),
    key,
  )
  if (data === undefined) {
    return (
      <div class="document">
        <DocumentHead database={database} id={id} />
        {failure === null ? (
          <Skeleton lines={12} />
        ) : failure.status === 404 ? (
          <NoDocument database={database} id={id} rev={rev} />
        ) : (
          <ErrorNotice failure={failure} title={texts.documentNotRead} onRetry={reload} />
        )}
      </div>
    )
  }
  if (rev !== undefined) return <OldRevision database={database} document={data} />
  return (
    <Editing
      key={key}
      database={database}
      document={data}
      reloadFailure={failure}
      isLoading={isLoading}
      onReload={reload}
    />
  )
}

function NoDocument({ database, id, rev }: DocumentPageProps) {
  if (rev !== undefined) {
    return (
      <Empty
        title={texts.revisionGone}
        icon="restore"
        action={
          <LinkButton href={hashOf(['databases', database, 'time-machine', id])}>{texts.history}</LinkButton>
        }
      >
        {texts.revisionGoneHelp}
      </Empty>
    )
  }
  return (
    <Empty
      title={texts.documentMissing}
      icon="file"
      action={
        <LinkButton kind="primary" href={hashOf(['databases', database, 'documents'], { new: '1', id })}>
          {texts.createWithId}
        </LinkButton>
      }
    >
      {texts.documentMissingHelp}
    </Empty>
  )
}

/** A revision that is not the winner. */
function OldRevision({ database, document }: { readonly database: string; readonly document: OpenDocument }) {
  const { id } = document
  return (
    <div class="document">
      <DocumentHead database={database} id={id} document={document}>
        <LinkButton href={hashOf(['databases', database, 'documents', id])}>{texts.toWinner}</LinkButton>
      </DocumentHead>
      <Notice tone="info">{texts.oldRevision}</Notice>
      <div class="document-body">
        <JsonEditor label={texts.editorLabel} value={document.body} fills />
        <aside class="document-side">
          <Attachments database={database} document={document} />
          <Revisions database={database} document={document} />
        </aside>
      </div>
    </div>
  )
}

interface EditingProps {
  readonly database: string
  readonly document: OpenDocument
  readonly reloadFailure: Failure | null
  readonly isLoading: boolean
  readonly onReload: () => void
}

function Editing({ database, document, reloadFailure, isLoading, onReload }: EditingProps) {
  const { id } = document
  const [base, setBase] = useState(document)
  const [body, setBody] = useState(() => draftOf(database, id)?.body ?? document.body)
  const [wasKept, setKept] = useState(() => draftOf(database, id) !== undefined)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [theirs, setTheirs] = useState<OpenDocument | null>(null)
  const [isSaving, setSaving] = useState(false)
  const isDirty = body !== base.body
  const isLocal = id.startsWith('_local/')
  useEffect(() => {
    // A new revision that came by a reload: the text follows, unless the user has changed it.
    setBase((old) => {
      if (old.rev !== document.rev) setBody((text) => (text === old.body ? document.body : text))
      return document
    })
  }, [document])
  useEffect(() => {
    if (isDirty) keepDraft(database, id, { body, rev: base.rev })
    else dropDraft(database, id)
  }, [body, base.body])
  const discard = () => {
    dropDraft(database, id)
    setKept(false)
    setBody(base.body)
  }
  const save = (text = body, onto = base) => {
    if (isSaving) return
    const wrong = problemOf(text)
    if (wrong !== null) {
      setFailure(new Failure(0, 'invalid', wrong, null))
      return
    }
    setSaving(true)
    setFailure(null)
    saveDocument(database, id, text, onto)
      .then(async () => {
        const saved = await readDocument(database, id, undefined, new AbortController().signal)
        setTheirs(null)
        setKept(false)
        setBase(saved)
        setBody(saved.body)
        dropDraft(database, id)
        say(texts.saved)
        onReload()
      })
      .catch(async (error: unknown) => {
        const why = asFailure(error)
        if (why.status !== 409) {
          setFailure(why)
          return
        }
        setBody(text)
        setTheirs(await readDocument(database, id, undefined, new AbortController().signal))
      })
      .catch((error: unknown) => setFailure(asFailure(error)))
      .finally(() => setSaving(false))
  }
  // The check of a long text would delay each key; it is made when the user pauses, and before a save.
  const fault = body.length <= SHORT ? findObjectFault(body) : null
  if (theirs !== null) {
    return (
      <div class="document">
        <DocumentHead database={database} id={id} document={theirs} />
        <LeaveGuard onDiscard={() => dropDraft(database, id)} />
        <SaveConflict
          theirs={theirs}
          mine={body}
          failure={failure}
          isSaving={isSaving}
          onSave={(merged) => save(merged, theirs)}
          onDiscard={() => {
            dropDraft(database, id)
            setTheirs(null)
            setBase(theirs)
            setBody(theirs.body)
          }}
        />
      </div>
    )
  }
  return (
    <div class="document">
      <DocumentHead database={database} id={id} document={base}>
        <Button
          disabled={fault !== null}
          onClick={() => setBody(findFault(body) === null ? formatJson(body) : body)}
        >
          {texts.format}
        </Button>
        {!isLocal && !base.isDeleted && base.rev !== null && (
          <Button
            kind="danger"
            icon="trash"
            label={texts.deleteThis}
            onClick={() =>
              askToDelete(database, [{ id, rev: base.rev ?? '' }], () => {
                dropDraft(database, id)
                setBody(base.body)
                go(hashOf(['databases', database, 'documents']))
              })
            }
          />
        )}
        <Button kind="primary" isBusy={isSaving} disabled={!isDirty || fault !== null} onClick={() => save()}>
          {base.isDeleted ? texts.saveDeleted : en.common.save}
        </Button>
      </DocumentHead>
      {isDirty && <LeaveGuard onDiscard={discard} />}
      {failure !== null && <ErrorNotice failure={failure} title={texts.notSaved} />}
      {reloadFailure !== null && !isLoading && (
        <ErrorNotice failure={reloadFailure} title={texts.documentNotRead} onRetry={onReload} />
      )}
      {wasKept && isDirty && (
        <Notice
          tone="info"
          isAnnounced
          actions={
            <Button isSmall onClick={discard}>
              {texts.discard}
            </Button>
          }
        >
          {texts.draftKept}
        </Notice>
      )}
      {base.isDeleted && <Notice tone="warn">{texts.deletedHelp}</Notice>}
      {base.conflicts.length > 0 && (
        <Notice
          tone="warn"
          title={texts.inConflict(base.conflicts.length)}
          actions={
            <LinkButton isSmall href={hashOf(['databases', database, 'documents', id], { conflict: '1' })}>
              {texts.compareConflicts}
            </LinkButton>
          }
        >
          {texts.inConflictHelp}
        </Notice>
      )}
      <div class={isLocal ? 'document-body is-alone' : 'document-body'}>
        <JsonEditor
          label={texts.editorLabel}
          value={body}
          onChange={setBody}
          onSave={() => save()}
          check={checkReserved}
          isObject
          fills
        />
        {!isLocal && (
          <aside class="document-side">
            <Attachments
              database={database}
              document={base}
              onChange={(next) => {
                setBase(next)
                if (!isDirty) setBody(next.body)
                onReload()
              }}
            />
            <Revisions database={database} document={base} />
          </aside>
        )}
      </div>
    </div>
  )
}

/** @returns why a text cannot be saved, in words; null: it can */
function problemOf(text: string): string | null {
  const fault = findObjectFault(text)
  return fault === null ? (checkReserved(text)?.text ?? null) : faultText(text, fault)
}

/** Names that begin with `_` belong to the server. */
export function checkReserved(text: string): { readonly at: number; readonly text: string } | null {
  const reserved = reservedMember(text)
  return reserved === null ? null : { at: reserved.at, text: texts.reserved(reserved.name) }
}
