/** A Mango query: its text, what came of it, and how the server answers it. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { findObjectFault, formatJson } from '../../parts/json-editor/exact-json.ts'
import { JsonEditor } from '../../parts/json-editor/json-editor.tsx'
import { ErrorNotice } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { askBoundedText } from './bounded-answer.ts'
import { ExplainCard } from './explain-card.tsx'
import { explainBody, pageBody, pageOf } from './find-body.ts'
import { type FindPage, FindResults, readPage } from './find-results.tsx'
import { QueryStarts } from './query-starts.tsx'
import { keepDraft, readDraft, rememberQuery } from './recent-queries.ts'

const FIRST = '{\n  "selector": {}\n}\n'

interface FindPartProps {
  readonly database: string
  readonly mayChange: boolean
}

/** The query whose answer is shown, which may differ from the one in the editor. */
interface Shown {
  readonly text: string
  readonly page: FindPage
  /** The bookmarks of the pages before this one; the first page has none. */
  readonly before: readonly (string | null)[]
  readonly bookmark: string | null
}

export function FindPart({ database, mayChange }: FindPartProps) {
  const [text, setText] = useState(() => readDraft(database) ?? FIRST)
  const [shown, setShown] = useState<Shown | null>(null)
  const [explained, setExplained] = useState<{ readonly text: string; readonly answer: string } | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [work, setWork] = useState<'find' | 'explain' | null>(null)
  const running = useRef<AbortController | null>(null)
  const info = useLoad(
    (signal) => ask<{ props?: { partitioned?: boolean } }>(pathOf(database), { signal }),
    database,
  )
  useEffect(() => () => running.current?.abort(), [])
  useEffect(() => keepDraft(database, text), [database, text])
  const isValid = findObjectFault(text) === null

  const begin = async (kind: 'find' | 'explain', act: (signal: AbortSignal) => Promise<void>) => {
    running.current?.abort()
    const controller = new AbortController()
    running.current = controller
    setWork(kind)
    setFailure(null)
    try {
      await act(controller.signal)
    } catch (error) {
      if (!isAborted(error) && running.current === controller) setFailure(asFailure(error))
    } finally {
      if (running.current === controller) setWork(null)
    }
  }
  const readOne = (asked: string, before: Shown['before'], bookmark: string | null) =>
    begin('find', async (signal) => {
      const body = pageBody(asked, bookmark)
      const answer = await askBoundedText(pathOf(database, '_find'), jsonCall(body, signal))
      setShown({ text: asked, page: readPage(answer, pageOf(asked)), before, bookmark })
    })
  const run = () => {
    if (!isValid) return
    setExplained(null)
    rememberQuery(database, text)
    void readOne(text, [], null)
  }
  const explain = () =>
    begin('explain', async (signal) => {
      const answer = await askBoundedText(pathOf(database, '_explain'), jsonCall(explainBody(text), signal))
      setExplained({ text, answer })
    })
  const runByKey = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return
    event.preventDefault()
    event.stopPropagation()
    run()
  }
  return (
    <>
      <Card title={en.queries.find.title} lead={en.queries.find.lead}>
        <QueryStarts database={database} key={shown?.text} onChoose={setText} />
        <div class="query-editor" onKeyDownCapture={runByKey}>
          <JsonEditor label={en.queries.find.editor} value={text} onChange={setText} isObject onSave={run} />
        </div>
        {info.data?.props?.partitioned === true && <p class="hint">{en.queries.find.partitioned}</p>}
        <div class="row">
          <Button kind="primary" icon="play" onClick={run} isBusy={work === 'find'} disabled={!isValid}>
            {en.queries.find.run}
          </Button>
          <Button onClick={() => void explain()} isBusy={work === 'explain'} disabled={!isValid}>
            {en.queries.find.explain}
          </Button>
          <Button kind="quiet" onClick={() => setText(formatJson(text))} disabled={!isValid}>
            {en.queries.find.format}
          </Button>
          {work !== null && (
            <Button kind="quiet" onClick={() => running.current?.abort()}>
              {en.queries.find.stop}
            </Button>
          )}
          <span class="fine query-key">{en.queries.find.key}</span>
        </div>
        {failure !== null && <ErrorNotice failure={failure} title={en.queries.find.failed} />}
      </Card>
      {explained !== null && (
        <ExplainCard
          database={database}
          text={explained.text}
          answer={explained.answer}
          mayChange={mayChange}
          offersIndex={shown?.text !== explained.text}
          onClose={() => setExplained(null)}
        />
      )}
      {shown !== null && (
        <FindResults
          database={database}
          text={shown.text}
          page={shown.page}
          number={shown.before.length + 1}
          mayChange={mayChange}
          isBusy={work === 'find'}
          isOld={shown.text !== text}
          onRunAgain={() => void readOne(shown.text, [], null)}
          onNext={() => void readOne(shown.text, [...shown.before, shown.bookmark], shown.page.bookmark)}
          onBack={() => void readOne(shown.text, shown.before.slice(0, -1), shown.before.at(-1) ?? null)}
        />
      )}
    </>
  )
}

function jsonCall(body: string, signal: AbortSignal) {
  return { method: 'POST', body, headers: { 'Content-Type': 'application/json' }, signal }
}
