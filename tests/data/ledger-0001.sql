BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempt (
	campaign VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	axis VARCHAR, 
	seed BIGINT NOT NULL, 
	started_at DATETIME NOT NULL, 
	PRIMARY KEY (campaign, round, slot, attempt)
);
INSERT INTO "attempt" VALUES('quick-owl-7f3a',1,3,1,'explore',NULL,7,'2026-01-02 12:00:00.000250');
CREATE TABLE campaign (
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	"plan" TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	substrate_name VARCHAR NOT NULL, 
	substrate_sha256 VARCHAR NOT NULL, 
	judge_sha256 VARCHAR NOT NULL, 
	constitution_sha256 VARCHAR NOT NULL, 
	recipe VARCHAR NOT NULL, 
	worker VARCHAR NOT NULL, 
	flow_run_id VARCHAR, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "campaign" VALUES('quick-owl-7f3a','quick-owl','{"width":8}',9223372036854775807,'stub','abababababababababababababababababababababababababababababababab','abababababababababababababababababababababababababababababababab','abababababababababababababababababababababababababababababababab','stub','sampler',NULL,'2026-01-02 12:00:00.000250');
CREATE TABLE claim (
	campaign VARCHAR NOT NULL, 
	policy_version INTEGER NOT NULL, 
	claim VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	rows TEXT NOT NULL, 
	PRIMARY KEY (campaign, policy_version, claim)
);
INSERT INTO "claim" VALUES('quick-owl-7f3a',1,'it-helps','It helps.','["r1/s3"]');
CREATE TABLE dead_end (
	campaign VARCHAR NOT NULL, 
	policy_version INTEGER NOT NULL, 
	dead_end VARCHAR NOT NULL, 
	axis VARCHAR NOT NULL, 
	title TEXT NOT NULL, 
	rows TEXT NOT NULL, 
	PRIMARY KEY (campaign, policy_version, dead_end)
);
INSERT INTO "dead_end" VALUES('quick-owl-7f3a',1,'no','step-size','No','[]');
CREATE TABLE event (
	seq INTEGER NOT NULL, 
	campaign VARCHAR, 
	kind VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	previous VARCHAR NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "event" VALUES(1,NULL,'substrate','abababababababababababababababababababababababababababababababab','{"sha256":"42afc3c9459d7f5aad6a1351e7473938283582b7cf01c0311b0db70045f6e85f"}','2026-11-30 15:24:04.484034','','f9fe3c8e003ab47e0bbfacefabf100bde3f90cedc17cae719b0070ada035747f');
INSERT INTO "event" VALUES(2,'quick-owl-7f3a','campaign','quick-owl-7f3a','{"sha256":"3704b444e6dbad8d7849b61b8ea5e36c46967e533574d6f054ee5331b11b3f6a"}','2026-11-30 15:24:04.484034','f9fe3c8e003ab47e0bbfacefabf100bde3f90cedc17cae719b0070ada035747f','7b12d45817bff44d946e7248a76b38ec0be7626afa7520c831b574ef7a7b5570');
INSERT INTO "event" VALUES(3,'quick-owl-7f3a','policy','quick-owl-7f3a/p1','{"sha256":"b9052150efb0adb2f797ec67efb8166bde78d5acf30f84148f2dfa2f5bf6d26c"}','2026-11-30 15:24:04.484034','7b12d45817bff44d946e7248a76b38ec0be7626afa7520c831b574ef7a7b5570','cb5d0b54bac844a0ebe606a603752c25b5c8b18ba7a14f7ddb05c976c0272f02');
INSERT INTO "event" VALUES(4,'quick-owl-7f3a','round','quick-owl-7f3a/r1','{"sha256":"967602137a930c25bd49c3c37a586c796bba51fa40f81c55832a77b175479057"}','2026-11-30 15:24:04.484034','cb5d0b54bac844a0ebe606a603752c25b5c8b18ba7a14f7ddb05c976c0272f02','84130150035168bdeac5ea47cebc29324cc331a1e19da13c690d2d76ac1b0c29');
INSERT INTO "event" VALUES(5,'quick-owl-7f3a','attempt','quick-owl-7f3a/r1/s3/a1','{"sha256":"124ac6be3d62cbfc12fe51bdcd0d4899e84e9a8d5f249e2824e3a839487484cb"}','2026-11-30 15:24:04.484034','84130150035168bdeac5ea47cebc29324cc331a1e19da13c690d2d76ac1b0c29','298a99ca42f93d5d324f47a61cb66cbcdafbe4dc9d33ed7da78fceb6ca562abb');
INSERT INTO "event" VALUES(6,'quick-owl-7f3a','trial','quick-owl-7f3a/r1/s3','{"sha256":"961f573f3fc28cf372e050fd4c47f33b464066819719745881ae8de2ae4dff50"}','2026-11-30 15:24:04.484034','298a99ca42f93d5d324f47a61cb66cbcdafbe4dc9d33ed7da78fceb6ca562abb','fd6ee3322f7026f6589308566f4d354cea9a4fa5a543e8463fc61c3c069de50f');
INSERT INTO "event" VALUES(7,'quick-owl-7f3a','score','quick-owl-7f3a/r1/s3/dev/overall','{"sha256":"65875fa0b117c81fb3ed59688ea4036b19f2841ce5753d1e176e824f91081976"}','2026-11-30 15:24:04.484034','fd6ee3322f7026f6589308566f4d354cea9a4fa5a543e8463fc61c3c069de50f','181c3021c1ef2894716a9193873f3c67823c7621935e7098455e8bbc8c40469d');
INSERT INTO "event" VALUES(8,'quick-owl-7f3a','look','quick-owl-7f3a/r1/s3','{"sha256":"30d483365ec2912f789968bc4218fa346613b1c0916d832ad6bedec0f5e2ad45"}','2026-11-30 15:24:04.484034','181c3021c1ef2894716a9193873f3c67823c7621935e7098455e8bbc8c40469d','98ea0848ad6cf36e84622ac6569087bf4af370e03e34d9f4bc970a8d4297efda');
INSERT INTO "event" VALUES(9,'quick-owl-7f3a','report','quick-owl-7f3a/r1','{"sha256":"e4732cdb68ee0371cdb9e2994a41dc05546db81920ba21c7adf36bb4b0fd8753"}','2026-11-30 15:24:04.484034','98ea0848ad6cf36e84622ac6569087bf4af370e03e34d9f4bc970a8d4297efda','46a13b26d4a3e0d90788af1a78b719086c932b14462eb26faedf8726e55cf13f');
INSERT INTO "event" VALUES(10,'quick-owl-7f3a','claim','quick-owl-7f3a/p1/it-helps','{"sha256":"92ee2a9cb751d6178071b20684c5297f4b985313e3b77c84bd9050f7585408a3"}','2026-11-30 15:24:04.484034','46a13b26d4a3e0d90788af1a78b719086c932b14462eb26faedf8726e55cf13f','27ecef2efa39f200375cd51a919e8583bb4ca906f0241477d109234ee34f8721');
INSERT INTO "event" VALUES(11,'quick-owl-7f3a','dead_end','quick-owl-7f3a/p1/no','{"sha256":"a06d309f405de6030a0a73cb5b01a9d99c99448c0ddadc3e5e42cff93fcfbd1d"}','2026-11-30 15:24:04.484034','27ecef2efa39f200375cd51a919e8583bb4ca906f0241477d109234ee34f8721','0e063a5eda22b1756e6a91fcc882d967f5e501c9f22c17c0d1fa24115c6b3b94');
INSERT INTO "event" VALUES(12,'quick-owl-7f3a','spend','quick-owl-7f3a/r1/s3/a1/seconds/reserved','{"sha256":"f345471b68d48f54f7273b5a10b0945bf35ddec15e394d296f2993ebd05ee289"}','2026-11-30 15:24:04.484034','0e063a5eda22b1756e6a91fcc882d967f5e501c9f22c17c0d1fa24115c6b3b94','f78e3a6eaf02a8606b03653e7bcd307ba62c66fcab565b3fd0eddf0b29650366');
INSERT INTO "event" VALUES(13,NULL,'patch','922dd52a81ff1c3d456cb861de7ad959496295c809971e848d414d3cdfe3fb23','{"sha256":"c35996cf97fbb3575e6216ef4b532d2d1dcf93cf24e507efa68d1a2bbe86b7ad"}','2026-11-30 15:24:04.484034','f78e3a6eaf02a8606b03653e7bcd307ba62c66fcab565b3fd0eddf0b29650366','4cea675cd28e145c319649343af9a9d8946fdeaababf5c9c102944943774819c');
INSERT INTO "event" VALUES(14,'quick-owl-7f3a','campaign.completed','quick-owl-7f3a','{}','2026-11-30 15:24:04.484034','4cea675cd28e145c319649343af9a9d8946fdeaababf5c9c102944943774819c','d424e216b4e07558f953ff5a9bba5c0ec736406169e1d2d04dd10039f7d598af');
CREATE TABLE lease (
	name VARCHAR NOT NULL, 
	holder VARCHAR NOT NULL, 
	expires_at DATETIME NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "lease" VALUES('campaign/quick-owl-7f3a','a','2026-11-30 15:25:04.503827');
CREATE TABLE look (
	campaign VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	PRIMARY KEY (campaign, round, slot), 
	CONSTRAINT look_number UNIQUE (campaign, number)
);
INSERT INTO "look" VALUES('quick-owl-7f3a',1,3,1);
CREATE TABLE outbox (
	id INTEGER NOT NULL, 
	campaign VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	published_at DATETIME, 
	PRIMARY KEY (id)
);
INSERT INTO "outbox" VALUES(1,'quick-owl-7f3a','markdown','k','# c','2026-11-30 15:24:04.498754',NULL);
CREATE TABLE patch (
	sha256 VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "patch" VALUES('922dd52a81ff1c3d456cb861de7ad959496295c809971e848d414d3cdfe3fb23','--- a/x
+++ b/x
');
CREATE TABLE policy (
	campaign VARCHAR NOT NULL, 
	version INTEGER NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	parent VARCHAR, 
	body TEXT NOT NULL, 
	author VARCHAR NOT NULL, 
	round INTEGER, 
	created_at DATETIME NOT NULL, 
	PRIMARY KEY (campaign, version)
);
INSERT INTO "policy" VALUES('quick-owl-7f3a',1,'abababababababababababababababababababababababababababababababab',NULL,'{}','seed',NULL,'2026-01-02 12:00:00.000250');
CREATE TABLE report (
	campaign VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	sha256 VARCHAR NOT NULL, 
	results_sha256 VARCHAR NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (campaign, round)
);
INSERT INTO "report" VALUES('quick-owl-7f3a',1,'44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','abababababababababababababababababababababababababababababababab','{}');
CREATE TABLE round (
	campaign VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	policy_version INTEGER NOT NULL, 
	started_at DATETIME NOT NULL, 
	PRIMARY KEY (campaign, number)
);
INSERT INTO "round" VALUES('quick-owl-7f3a',1,1,'2026-01-02 12:00:00.000250');
CREATE TABLE score (
	campaign VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	problem_set VARCHAR NOT NULL, 
	domain VARCHAR NOT NULL, 
	value FLOAT NOT NULL, 
	n INTEGER NOT NULL, 
	metric VARCHAR NOT NULL, 
	metric_version VARCHAR NOT NULL, 
	engine VARCHAR NOT NULL, 
	PRIMARY KEY (campaign, round, slot, problem_set, domain)
);
INSERT INTO "score" VALUES('quick-owl-7f3a',1,3,'dev','overall',0.5,64,'accuracy','abababababababababababababababababababababababababababababababab','stub 1');
CREATE TABLE spend (
	campaign VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	unit VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	amount FLOAT NOT NULL, 
	PRIMARY KEY (campaign, subject, unit, state)
);
INSERT INTO "spend" VALUES('quick-owl-7f3a','r1/s3/a1','seconds','reserved',30.0);
CREATE TABLE substrate (
	sha256 VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	manifest TEXT NOT NULL, 
	sealed_at DATETIME NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "substrate" VALUES('abababababababababababababababababababababababababababababababab','stub','{"name":"stub"}','2026-01-02 12:00:00.000250');
CREATE TABLE trial (
	campaign VARCHAR NOT NULL, 
	round INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	axis VARCHAR, 
	outcome VARCHAR NOT NULL, 
	hypothesis TEXT NOT NULL, 
	edit TEXT NOT NULL, 
	diff_sha256 VARCHAR, 
	seed BIGINT NOT NULL, 
	adapter_sha256 VARCHAR, 
	integrity TEXT NOT NULL, 
	account TEXT NOT NULL, 
	finished_at DATETIME NOT NULL, 
	PRIMARY KEY (campaign, round, slot)
);
INSERT INTO "trial" VALUES('quick-owl-7f3a',1,3,1,'explore','step-size','evaluated','smaller steps forget less','{"overrides":{"recipes/stub.py":{"STEP":0.003}},"patch":null}','abababababababababababababababababababababababababababababababab',7,'abababababababababababababababababababababababababababababababab','[]','{"attempts":1}','2026-01-02 12:00:00.000250');
CREATE INDEX event_campaign_kind ON event (campaign, kind, seq);
CREATE TRIGGER campaign_no_update BEFORE UPDATE ON campaign BEGIN SELECT RAISE(ABORT, 'campaign is append-only: UPDATE refused'); END;
CREATE TRIGGER campaign_no_delete BEFORE DELETE ON campaign BEGIN SELECT RAISE(ABORT, 'campaign is append-only: DELETE refused'); END;
CREATE TRIGGER substrate_no_update BEFORE UPDATE ON substrate BEGIN SELECT RAISE(ABORT, 'substrate is append-only: UPDATE refused'); END;
CREATE TRIGGER substrate_no_delete BEFORE DELETE ON substrate BEGIN SELECT RAISE(ABORT, 'substrate is append-only: DELETE refused'); END;
CREATE TRIGGER policy_no_update BEFORE UPDATE ON policy BEGIN SELECT RAISE(ABORT, 'policy is append-only: UPDATE refused'); END;
CREATE TRIGGER policy_no_delete BEFORE DELETE ON policy BEGIN SELECT RAISE(ABORT, 'policy is append-only: DELETE refused'); END;
CREATE TRIGGER round_no_update BEFORE UPDATE ON round BEGIN SELECT RAISE(ABORT, 'round is append-only: UPDATE refused'); END;
CREATE TRIGGER round_no_delete BEFORE DELETE ON round BEGIN SELECT RAISE(ABORT, 'round is append-only: DELETE refused'); END;
CREATE TRIGGER attempt_no_update BEFORE UPDATE ON attempt BEGIN SELECT RAISE(ABORT, 'attempt is append-only: UPDATE refused'); END;
CREATE TRIGGER attempt_no_delete BEFORE DELETE ON attempt BEGIN SELECT RAISE(ABORT, 'attempt is append-only: DELETE refused'); END;
CREATE TRIGGER trial_no_update BEFORE UPDATE ON trial BEGIN SELECT RAISE(ABORT, 'trial is append-only: UPDATE refused'); END;
CREATE TRIGGER trial_no_delete BEFORE DELETE ON trial BEGIN SELECT RAISE(ABORT, 'trial is append-only: DELETE refused'); END;
CREATE TRIGGER score_no_update BEFORE UPDATE ON score BEGIN SELECT RAISE(ABORT, 'score is append-only: UPDATE refused'); END;
CREATE TRIGGER score_no_delete BEFORE DELETE ON score BEGIN SELECT RAISE(ABORT, 'score is append-only: DELETE refused'); END;
CREATE TRIGGER look_no_update BEFORE UPDATE ON look BEGIN SELECT RAISE(ABORT, 'look is append-only: UPDATE refused'); END;
CREATE TRIGGER look_no_delete BEFORE DELETE ON look BEGIN SELECT RAISE(ABORT, 'look is append-only: DELETE refused'); END;
CREATE TRIGGER report_no_update BEFORE UPDATE ON report BEGIN SELECT RAISE(ABORT, 'report is append-only: UPDATE refused'); END;
CREATE TRIGGER report_no_delete BEFORE DELETE ON report BEGIN SELECT RAISE(ABORT, 'report is append-only: DELETE refused'); END;
CREATE TRIGGER claim_no_update BEFORE UPDATE ON claim BEGIN SELECT RAISE(ABORT, 'claim is append-only: UPDATE refused'); END;
CREATE TRIGGER claim_no_delete BEFORE DELETE ON claim BEGIN SELECT RAISE(ABORT, 'claim is append-only: DELETE refused'); END;
CREATE TRIGGER dead_end_no_update BEFORE UPDATE ON dead_end BEGIN SELECT RAISE(ABORT, 'dead_end is append-only: UPDATE refused'); END;
CREATE TRIGGER dead_end_no_delete BEFORE DELETE ON dead_end BEGIN SELECT RAISE(ABORT, 'dead_end is append-only: DELETE refused'); END;
CREATE TRIGGER spend_no_update BEFORE UPDATE ON spend BEGIN SELECT RAISE(ABORT, 'spend is append-only: UPDATE refused'); END;
CREATE TRIGGER spend_no_delete BEFORE DELETE ON spend BEGIN SELECT RAISE(ABORT, 'spend is append-only: DELETE refused'); END;
CREATE TRIGGER patch_no_update BEFORE UPDATE ON patch BEGIN SELECT RAISE(ABORT, 'patch is append-only: UPDATE refused'); END;
CREATE TRIGGER patch_no_delete BEFORE DELETE ON patch BEGIN SELECT RAISE(ABORT, 'patch is append-only: DELETE refused'); END;
CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'event is append-only: UPDATE refused'); END;
CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'event is append-only: DELETE refused'); END;
CREATE TRIGGER campaign_no_replace_id BEFORE INSERT ON campaign WHEN EXISTS (SELECT 1 FROM campaign WHERE id = NEW.id) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: campaign.id'); END;
CREATE TRIGGER substrate_no_replace_sha256 BEFORE INSERT ON substrate WHEN EXISTS (SELECT 1 FROM substrate WHERE sha256 = NEW.sha256) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: substrate.sha256'); END;
CREATE TRIGGER policy_no_replace_version BEFORE INSERT ON policy WHEN EXISTS (SELECT 1 FROM policy WHERE campaign = NEW.campaign AND version = NEW.version) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: policy.campaign, policy.version'); END;
CREATE TRIGGER round_no_replace_number BEFORE INSERT ON round WHEN EXISTS (SELECT 1 FROM round WHERE campaign = NEW.campaign AND number = NEW.number) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: round.campaign, round.number'); END;
CREATE TRIGGER attempt_no_replace_attempt BEFORE INSERT ON attempt WHEN EXISTS (SELECT 1 FROM attempt WHERE campaign = NEW.campaign AND round = NEW.round AND slot = NEW.slot AND attempt = NEW.attempt) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: attempt.campaign, attempt.round, attempt.slot, attempt.attempt'); END;
CREATE TRIGGER trial_no_replace_slot BEFORE INSERT ON trial WHEN EXISTS (SELECT 1 FROM trial WHERE campaign = NEW.campaign AND round = NEW.round AND slot = NEW.slot) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: trial.campaign, trial.round, trial.slot'); END;
CREATE TRIGGER score_no_replace_domain BEFORE INSERT ON score WHEN EXISTS (SELECT 1 FROM score WHERE campaign = NEW.campaign AND round = NEW.round AND slot = NEW.slot AND problem_set = NEW.problem_set AND domain = NEW.domain) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: score.campaign, score.round, score.slot, score.problem_set, score.domain'); END;
CREATE TRIGGER look_no_replace_slot BEFORE INSERT ON look WHEN EXISTS (SELECT 1 FROM look WHERE campaign = NEW.campaign AND round = NEW.round AND slot = NEW.slot) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: look.campaign, look.round, look.slot'); END;
CREATE TRIGGER look_no_replace_number BEFORE INSERT ON look WHEN EXISTS (SELECT 1 FROM look WHERE campaign = NEW.campaign AND number = NEW.number) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: look.campaign, look.number'); END;
CREATE TRIGGER report_no_replace_round BEFORE INSERT ON report WHEN EXISTS (SELECT 1 FROM report WHERE campaign = NEW.campaign AND round = NEW.round) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: report.campaign, report.round'); END;
CREATE TRIGGER claim_no_replace_claim BEFORE INSERT ON claim WHEN EXISTS (SELECT 1 FROM claim WHERE campaign = NEW.campaign AND policy_version = NEW.policy_version AND claim = NEW.claim) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: claim.campaign, claim.policy_version, claim.claim'); END;
CREATE TRIGGER dead_end_no_replace_dead_end BEFORE INSERT ON dead_end WHEN EXISTS (SELECT 1 FROM dead_end WHERE campaign = NEW.campaign AND policy_version = NEW.policy_version AND dead_end = NEW.dead_end) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: dead_end.campaign, dead_end.policy_version, dead_end.dead_end'); END;
CREATE TRIGGER spend_no_replace_state BEFORE INSERT ON spend WHEN EXISTS (SELECT 1 FROM spend WHERE campaign = NEW.campaign AND subject = NEW.subject AND unit = NEW.unit AND state = NEW.state) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: spend.campaign, spend.subject, spend.unit, spend.state'); END;
CREATE TRIGGER patch_no_replace_sha256 BEFORE INSERT ON patch WHEN EXISTS (SELECT 1 FROM patch WHERE sha256 = NEW.sha256) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: patch.sha256'); END;
CREATE TRIGGER event_no_replace_seq BEFORE INSERT ON event WHEN EXISTS (SELECT 1 FROM event WHERE seq = NEW.seq) BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: event.seq'); END;
CREATE TRIGGER event_follows BEFORE INSERT ON event WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event) OR NEW.previous IS NOT coalesce((SELECT hash FROM event ORDER BY seq DESC LIMIT 1), '') BEGIN SELECT RAISE(ABORT, 'event does not follow the last one'); END;
COMMIT;
