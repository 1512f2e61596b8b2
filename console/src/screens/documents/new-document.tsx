import { useEffect, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { TextField } from '../../parts/field.tsx'
import { findObjectFault } from '../../parts/json-editor/exact-json.ts'
import { JsonEditor } from '../../parts/json-editor/json-editor.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { DocumentHead } from './document-head.tsx'
import { checkReserved } from './document-page.tsx'
import { reservedMember } from './document-text.ts'
import { draftOf, dropDraft, keepDraft } from './drafts.ts'
import { LeaveGuard } from './leave-guard.tsx'
import { saveDocument } from './stored-document.ts'

const { documents: texts } = en
const EMPTY = '{\n  \n}'

interface NewDocumentProps {
  readonly database: string
  /** The id that is filled in. */
  readonly id: string
}

export function NewDocument({ database, id: given }: NewDocumentProps) {
  const [id, setId] = useState(given)
  const [body, setBody] = useState(() => draftOf(database, null)?.body ?? EMPTY)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [created, setCreated] = useState<string | null>(null)
  const [isSaving, setSaving] = useState(false)
  const isDirty = body !== EMPTY && created === null
  useEffect(() => {
    if (isDirty) keepDraft(database, null, { body, rev: null })
  }, [body])
  useEffect(() => {
    if (created !== null) go(hashOf(['databases', database, 'documents', created]), { replaces: true })
  }, [created])
  const isReady = findObjectFault(body) === null && reservedMember(body) === null
  const save = () => {
    if (isSaving || !isReady) return
    setSaving(true)
    setFailure(null)
    saveDocument(database, id === '' ? undefined : id, body, null).then(
      (saved) => {
        dropDraft(database, null)
        say(texts.created(saved.id))
        setCreated(saved.id)
      },
      (error: unknown) => {
        setFailure(asFailure(error))
        setSaving(false)
      },
    )
  }
  return (
    <div class="document">
      <DocumentHead database={database} id={null}>
        <Button kind="primary" isBusy={isSaving} disabled={!isReady} onClick={save}>
          {texts.create}
        </Button>
      </DocumentHead>
      {isDirty && <LeaveGuard onDiscard={() => dropDraft(database, null)} />}
      {failure !== null &&
        (failure.status === 409 ? (
          <Notice
            tone="bad"
            title={texts.exists(id)}
            isAnnounced
            actions={
              <LinkButton isSmall href={hashOf(['databases', database, 'documents', id])}>
                {texts.openExisting}
              </LinkButton>
            }
          >
            {texts.existsHelp}
          </Notice>
        ) : (
          <ErrorNotice failure={failure} title={texts.notSaved} />
        ))}
      <TextField label={texts.idLabel} hint={texts.idHint} value={id} onChange={setId} isCode />
      <JsonEditor
        label={texts.editorLabel}
        value={body}
        onChange={setBody}
        onSave={save}
        check={checkReserved}
        isObject
        fills
      />
    </div>
  )
}
