/** How the server answers a query: in words, and as it says it. */
import { useState } from 'preact/hooks'
import { Button } from '../../parts/button.tsx'
import { formatJson } from '../../parts/json-editor/exact-json.ts'
import { Badge } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { CodeBlock } from './code-block.tsx'
import { type Explanation, explainedQuery } from './explain-words.ts'
import { IndexOffer } from './index-offer.tsx'

interface ExplainCardProps {
  readonly database: string
  readonly text: string
  /** Of `_explain`. */
  readonly answer: string
  readonly mayChange: boolean
  /** Whether an index is offered here; the results may do so already. */
  readonly offersIndex: boolean
  onClose(): void
}

export function ExplainCard({ database, text, answer, mayChange, offersIndex, onClose }: ExplainCardProps) {
  const [isJson, setJson] = useState(false)
  const [isMade, setMade] = useState(false)
  const { isFullScan, steps, others } = explainedQuery(JSON.parse(answer) as Explanation)
  const actions = (
    <>
      <Button isSmall isPressed={isJson} onClick={() => setJson(!isJson)}>
        {en.queries.results.json}
      </Button>
      <Button isSmall kind="quiet" icon="close" label={en.common.close} onClick={onClose} />
    </>
  )
  return (
    <Card title={en.queries.explain.title} actions={actions}>
      {isJson ? (
        <CodeBlock label={en.queries.explain.title} text={formatJson(answer)} />
      ) : (
        <>
          <div role="status">
            <ol class="explain-steps">
              {steps.map((step) => (
                <li key={step}>{step}</li>
              ))}
            </ol>
          </div>
          {isFullScan && offersIndex && !isMade && (
            <IndexOffer
              database={database}
              text={text}
              mayChange={mayChange}
              onMade={() => {
                setMade(true)
                onClose()
              }}
            />
          )}
          {others.length > 0 && (
            <>
              <h3>{en.queries.explain.others}</h3>
              <ul class="explain-others">
                {others.map(({ name, reason }) => (
                  <li key={name}>
                    <Badge>{name}</Badge> <span>{reason}</span>
                  </li>
                ))}
              </ul>
            </>
          )}
        </>
      )}
    </Card>
  )
}
