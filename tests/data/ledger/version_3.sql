BEGIN TRANSACTION;
CREATE TABLE allowances (
                account TEXT PRIMARY KEY NOT NULL, balance_nano BIGINT NOT NULL, open_nano BIGINT NOT NULL,
                at DOUBLE PRECISION NOT NULL);
INSERT INTO "allowances" VALUES('all',568000,40000000,1764000001.0);
CREATE TABLE budgets (
                name TEXT NOT NULL, period TEXT NOT NULL, usd_nano BIGINT NOT NULL, reserved_nano BIGINT NOT NULL,
                spent_nano BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (name, period));
INSERT INTO "budgets" VALUES('session:nightly','',5000000000,50000000,0,1764000001.0);
INSERT INTO "budgets" VALUES('daily','2025-11-24',20000000000,50000000,0,1764000001.0);
CREATE TABLE calls (
                call_id TEXT PRIMARY KEY NOT NULL, request_id TEXT NOT NULL, side TEXT NOT NULL, purpose TEXT NOT NULL,
                billed BOOLEAN NOT NULL, status TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
                closed_at DOUBLE PRECISION, owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                worst_nano BIGINT, input_tokens INTEGER, cached_tokens INTEGER, cache_write_tokens INTEGER,
                output_tokens INTEGER, reasoning_tokens INTEGER, estimated BOOLEAN, service_tier TEXT,
                cost_nano BIGINT, budget_nano BIGINT, seconds DOUBLE PRECISION, http_status INTEGER, asked_tier TEXT, price_flags TEXT);
INSERT INTO "calls" VALUES('cs-kept.1','cs-kept','target','score',1,'ok',1764000001.1,1764000001.3,'host-1-0',1764000060.0,20000000,700,512,0,17,0,0,NULL,412000,NULL,0.2,200,NULL,NULL);
INSERT INTO "calls" VALUES('cs-kept.2','cs-kept','target','continue',1,'open',1764000001.4,NULL,'host-1-0',1764000060.0,30000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE capabilities (
                base_url TEXT NOT NULL, model TEXT NOT NULL, backend TEXT NOT NULL, can_score BOOLEAN,
                can_force BOOLEAN, can_continue BOOLEAN, can_judge BOOLEAN, reports_cached_tokens BOOLEAN,
                qs DOUBLE PRECISION, qh DOUBLE PRECISION, evidence TEXT NOT NULL, probed_at DOUBLE PRECISION NOT NULL,
                expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (base_url, model, backend));
CREATE TABLE certificates (
                certificate_id TEXT PRIMARY KEY NOT NULL, at DOUBLE PRECISION NOT NULL, workload TEXT NOT NULL,
                rule TEXT NOT NULL, prompt_version TEXT NOT NULL, draft TEXT NOT NULL, target TEXT NOT NULL,
                fingerprint TEXT, comparison TEXT NOT NULL, threshold DOUBLE PRECISION, n INTEGER NOT NULL,
                failures INTEGER NOT NULL, accepted INTEGER NOT NULL, loss DOUBLE PRECISION NOT NULL,
                confidence DOUBLE PRECISION NOT NULL, seen_until DOUBLE PRECISION NOT NULL,
                expires_at DOUBLE PRECISION NOT NULL, chance DOUBLE PRECISION, revoked_at DOUBLE PRECISION,
                revoked_why TEXT);
INSERT INTO "certificates" VALUES('ct-kept',1764000000.5,'maths','answer(last_number())','answer-1','ollama:qwen2.5:3b@http://127.0.0.1:11434','gpt-4o@https://api.example/v1','gpt-4o-2024-08-06/fp_1','last_number()',0.999,299,0,200,0.01,0.95,1764000000.5,1771776000.5,NULL,NULL,NULL);
CREATE TABLE estimates (
                target TEXT NOT NULL, workload TEXT NOT NULL, drafter TEXT NOT NULL, bucket TEXT NOT NULL,
                trials DOUBLE PRECISION NOT NULL, hits DOUBLE PRECISION NOT NULL, predicted DOUBLE PRECISION NOT NULL,
                updated_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (target, workload, drafter, bucket));
INSERT INTO "estimates" VALUES('gpt-4o@https://api.example/v1','mail','ollama:qwen2.5:3b','0.9',12.5,11.0,11.25,1764000001.0);
CREATE TABLE requests (
                request_id TEXT PRIMARY KEY NOT NULL, at DOUBLE PRECISION NOT NULL, closed_at DOUBLE PRECISION,
                owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                model TEXT NOT NULL, kind TEXT NOT NULL, stream BOOLEAN NOT NULL,
                session TEXT, session_id TEXT, workload TEXT,
                decision TEXT, reason TEXT, rule TEXT, drafter TEXT, rounds INTEGER, ties INTEGER,
                drafted_tokens INTEGER, accepted_tokens INTEGER, corrected_tokens INTEGER, handoff_tokens INTEGER,
                unverified_tokens INTEGER, target_calls INTEGER,
                input_tokens INTEGER, cached_input_tokens INTEGER, output_tokens INTEGER,
                paid_nano BIGINT, baseline_nano BIGINT, baseline TEXT, priced_by TEXT, simulated BOOLEAN,
                seconds_draft DOUBLE PRECISION, seconds_verify DOUBLE PRECISION,
                seconds_handoff DOUBLE PRECISION, seconds_total DOUBLE PRECISION,
                prompt_text TEXT, reply_text TEXT, fixed_draft_tokens INTEGER, local_nano BIGINT, lossy BOOLEAN, lenient_tokens INTEGER, target TEXT, prompt_tokens INTEGER, reply_tokens INTEGER, cached_prompt_tokens INTEGER, forecast_nano BIGINT);
INSERT INTO "requests" VALUES('cs-kept',1764000001.0,1764000001.9,'host-1-0',1764000060.0,'gpt-4o','chat',1,'nightly','5e551011','mail','speculate',NULL,'exact','ollama:qwen2.5:3b',1,0,2,1,0,0,0,2,700,512,17,412000,980000,'estimated','user',0,0.1,0.2,0.3,0.6,NULL,NULL,8,12000,0,0,'gpt-4o@https://api.example/v1',690,17,512,-3000);
CREATE TABLE reservations (
                request_id TEXT NOT NULL, name TEXT NOT NULL, period TEXT NOT NULL, status TEXT NOT NULL,
                amount_nano BIGINT NOT NULL, charged_nano BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL,
                closed_at DOUBLE PRECISION, owner TEXT NOT NULL, lease_expires DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (request_id, name, period));
INSERT INTO "reservations" VALUES('cs-kept','session:nightly','','held',50000000,0,1764000001.0,NULL,'host-1-0',1764000060.0);
INSERT INTO "reservations" VALUES('cs-kept','daily','2025-11-24','held',50000000,0,1764000001.0,NULL,'host-1-0',1764000060.0);
CREATE TABLE risks (
                request_id TEXT NOT NULL, account TEXT NOT NULL, amount_nano BIGINT NOT NULL, owner TEXT NOT NULL,
                lease_expires DOUBLE PRECISION NOT NULL, at DOUBLE PRECISION NOT NULL,
                PRIMARY KEY (request_id, account));
INSERT INTO "risks" VALUES('cs-kept','all',40000000,'host-1-0',1764000060.0,1764000001.0);
CREATE TABLE schema_version (version INTEGER PRIMARY KEY NOT NULL, applied_at DOUBLE PRECISION NOT NULL);
INSERT INTO "schema_version" VALUES(1,1764000000.0);
INSERT INTO "schema_version" VALUES(2,1764000000.0);
INSERT INTO "schema_version" VALUES(3,1764000000.0);
CREATE TABLE sessions (
                session_id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, parent_id TEXT,
                at DOUBLE PRECISION NOT NULL, closed_at DOUBLE PRECISION, owner TEXT NOT NULL);
INSERT INTO "sessions" VALUES('5e551011','nightly',NULL,1764000000.0,NULL,'host-1-0');
CREATE TABLE shadows (
                request_id TEXT NOT NULL, rule TEXT NOT NULL, kind TEXT NOT NULL, at DOUBLE PRECISION NOT NULL,
                workload TEXT NOT NULL, prompt_version TEXT NOT NULL, draft TEXT NOT NULL, target TEXT NOT NULL,
                fingerprint TEXT, outcome TEXT NOT NULL, score DOUBLE PRECISION, comparison TEXT NOT NULL,
                equal BOOLEAN, bad BOOLEAN, chance DOUBLE PRECISION, why TEXT NOT NULL, draft_text TEXT,
                PRIMARY KEY (request_id, rule, kind));
INSERT INTO "shadows" VALUES('cs-kept','answer(last_number())','shadow',1764000000.5,'maths','answer-1','ollama:qwen2.5:3b@http://127.0.0.1:11434','gpt-4o@https://api.example/v1','gpt-4o-2024-08-06/fp_1','accept',1.0,'last_number()',1,0,NULL,'the target''s own short answer is the draft''s',NULL);
CREATE TABLE traces (
                request_id TEXT NOT NULL, round INTEGER NOT NULL, drafter TEXT, position INTEGER NOT NULL,
                logprobs TEXT NOT NULL, agreed TEXT NOT NULL, ended BOOLEAN, model TEXT, PRIMARY KEY (request_id, round));
INSERT INTO "traces" VALUES('cs-kept',1,'ollama:qwen2.5:3b',0,'[-0.1, -0.7]','10',0,'gpt-4o-2024-08-06');
CREATE INDEX requests_at ON requests (at);
CREATE INDEX requests_session ON requests (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX requests_open ON requests (owner) WHERE closed_at IS NULL;
CREATE INDEX calls_request ON calls (request_id);
CREATE INDEX calls_open ON calls (owner) WHERE status = 'open';
CREATE INDEX sessions_name ON sessions (name);
CREATE INDEX reservations_held ON reservations (owner) WHERE status = 'held';
CREATE INDEX risks_owner ON risks (owner);
CREATE INDEX shadows_workload ON shadows (workload, target, at);
COMMIT;
